package gpugang

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/component-base/metrics"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
)

// What is served is what the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	m := newMetrics()
	r := metrics.NewKubeRegistry()
	r.MustRegister(m.all()...)
	r.CustomMustRegister(newGauges(&Plugin{machine: machine.New(nil), gangs: noGangs{}}))
	m.refusals.WithLabelValues("NoRoom").Inc()
	m.repairs.WithLabelValues(repairKept).Inc()
	m.spread.WithLabelValues(m.levels.of("")).Observe(1)
	served := map[string]string{}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		labels := make([]string, 0, 1)
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		served[f.GetName()] = strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ",") + " " + f.GetHelp()
	}
	want := map[string]string{}
	for _, f := range Families() {
		want[f.Name] = string(f.Type) + " " + strings.Join(f.Labels, ",") + " [ALPHA] " + f.Help
	}
	if diff := cmp.Diff(want, served); diff != "" {
		t.Errorf("metrics (-table +served):\n%s", diff)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// noGangs knows no gang.
type noGangs struct{ Gangs }

func (noGangs) Elastic() []podgroup.Ref { return nil }
