package fleets

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/servedmetrics"
)

// The controller serves the metrics that the table, and so the reference page, says. The series of a fleet end with it.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	w := newWorld(t)
	w.measure(map[string]string{"rate": "20", "latency": "0.8"})
	w.pass()
	w.metrics.failed()
	r := prometheus.NewRegistry()
	r.MustRegister(w.Collectors()...)
	servedmetrics.Check(t, r, "", servedmetrics.Sorted(Families()))
	of := func(g *prometheus.GaugeVec, labels ...string) float64 {
		return testutil.ToFloat64(g.WithLabelValues(labels...))
	}
	if got := []float64{of(w.metrics.replicas, "ns", "bert", "a100"), of(w.metrics.weights, "ns", "bert", "a100"), of(w.metrics.demand, "ns", "bert"), of(w.metrics.kept, "ns", "bert")}; !cmp.Equal(got, []float64{1, 1, 22, 1}) {
		t.Errorf("replicas, weight, demand, kept: %v", got)
	}
	must.OK(t, w.objects.Delete(t.Context(), w.fleet("bert")))
	w.pass()
	for i, g := range w.metrics.gauges() {
		if n := testutil.CollectAndCount(g); n > 0 {
			t.Errorf("gauge %d has %d series of a fleet that is gone", i, n)
		}
	}
}

func TestOptions(t *testing.T) {
	o := Options{Informers: informers.NewSharedInformerFactory(kubefake.NewClientset(), 0), Every: time.Second, Patience: time.Minute}
	c, err := New(o)
	must.OK(t, err)
	if err := c.Ready(nil); err == nil || !c.NeedLeaderElection() {
		t.Error("it is ready before it has read anything, or works without a lease")
	}
	for _, bad := range []Options{{Every: 0, Patience: time.Minute}, {Every: 2 * time.Hour, Patience: time.Minute}, {Every: time.Second, Patience: time.Second}, {Every: time.Second, Patience: 25 * time.Hour}} {
		if _, err := New(bad); err == nil {
			t.Errorf("%v and %v are legal", bad.Every, bad.Patience)
		}
	}
}
