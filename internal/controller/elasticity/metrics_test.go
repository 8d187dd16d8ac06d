package elasticity

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-gpu/tandem/test/servedmetrics"
)

// The controller serves the metrics that the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	c := &Controller{metrics: newMetrics()}
	r := prometheus.NewRegistry()
	r.MustRegister(c.Collectors()...)
	c.metrics.decided(time.Second, 3)
	c.metrics.moved(&decision{reason: "Idle"})
	c.metrics.failed()
	servedmetrics.Check(t, r, "", Families())
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
