package elasticity

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What is served is what the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	c := &Controller{metrics: newMetrics()}
	r := prometheus.NewRegistry()
	r.MustRegister(c.Collectors()...)
	c.metrics.decided(time.Second, 3)
	c.metrics.moved(&decision{reason: "Idle"})
	c.metrics.failed()
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
		want[f.Name] = string(f.Type) + " " + strings.Join(f.Labels, ",") + " " + f.Help
	}
	if diff := cmp.Diff(want, served); diff != "" {
		t.Errorf("metrics (-table +served):\n%s", diff)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestEvictionsAreCountedByTheirResult(t *testing.T) {
	m := newMetrics()
	m.evicted(nil)
	m.evicted(apierrors.NewTooManyRequests("a budget forbids it", 1))
	m.evicted(errors.New("no answer"))
	for _, result := range []string{"done", "budget", "failed"} {
		if got := testutil.ToFloat64(m.evictions.WithLabelValues(result)); got != 1 {
			t.Errorf("%s: %v", result, got)
		}
	}
}
