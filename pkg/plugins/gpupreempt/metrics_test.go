package gpupreempt

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics"

	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/servedmetrics"
)

// The plugin serves the metrics that the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	r := metrics.NewKubeRegistry()
	r.MustRegister(m.all()...)
	r.CustomMustRegister(newGauges(&Plugin{machine: machine.New(nil)}))
	m.attempt(resultEvicting)
	m.victims.WithLabelValues(kindName(preemption.Single)).Inc()
	servedmetrics.Check(t, r, servedmetrics.Alpha, Families())
}

// The results and kinds that are counted are those that the table names.
func TestMetricsNameTheirLabels(t *testing.T) {
	t.Parallel()
	for _, result := range []string{
		resultEvicting, resultWaiting, resultPending, resultMissed, resultDeferred, resultDryRun, resultIneligible,
		resultNeverHelps, resultGuarded, resultBudgeted, resultFiltered, resultFailed,
	} {
		if !strings.Contains(family("attempts_total").Help, result) {
			t.Errorf("the table does not name the result %s", result)
		}
	}
	for _, kind := range []preemption.Kind{preemption.Single, preemption.Surplus, preemption.Whole} {
		if !strings.Contains(family("victims_total").Help, kindName(kind)) {
			t.Errorf("the table does not name the kind %s", kindName(kind))
		}
	}
}

// count returns the value of a counter or of a gauge with a label's value, "" for none.
func (c *cluster) count(name, label string) float64 {
	c.T.Helper()
	r := metrics.NewKubeRegistry()
	r.MustRegister(c.plugin.metrics.all()...)
	r.CustomMustRegister(newGauges(c.plugin))
	families, err := r.Gather()
	must.OK(c.T, err)
	sum := 0.0
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == prefix+name && (label == "" || m.Label[0].GetValue() == label) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
