package gpugang

import (
	"testing"

	"k8s.io/component-base/metrics"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/test/servedmetrics"
)

// The plugin serves the metrics that the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	m := newMetrics()
	r := metrics.NewKubeRegistry()
	r.MustRegister(m.all()...)
	r.CustomMustRegister(newGauges(&Plugin{machine: machine.New(nil), gangs: noGangs{}}))
	m.refusals.WithLabelValues("NoRoom").Inc()
	m.repairs.WithLabelValues(repairKept).Inc()
	m.spread.WithLabelValues(m.levels.of("")).Observe(1)
	servedmetrics.Check(t, r, servedmetrics.Alpha, Families())
}

// noGangs knows no gang.
type noGangs struct{ Gangs }

func (noGangs) Elastic() []podgroup.Ref { return nil }
