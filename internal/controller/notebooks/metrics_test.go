package notebooks

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/servedmetrics"
)

func value(t testing.TB, c prometheus.Collector) float64 {
	t.Helper()
	return testutil.ToFloat64(c)
}

// The controller serves the metrics that the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	w := newWorld(t)
	r := prometheus.NewRegistry()
	r.MustRegister(w.Collectors()...)
	servedmetrics.Check(t, r, "", Families())
}

func TestWarningsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.idleFor(time.Hour)
	w.passes(5)
	if n := value(t, w.metrics.warnings); n != 1 {
		t.Errorf("%v warnings", n)
	}
}

func TestOptions(t *testing.T) {
	o := Options{Informers: informers.NewSharedInformerFactory(kubefake.NewClientset(), 0), Every: time.Second, Notice: 10 * time.Second}
	c, err := New(o)
	must.OK(t, err)
	if err := c.Ready(nil); err == nil || !c.NeedLeaderElection() {
		t.Error("it is ready before it has read anything, or works without a lease")
	}
	for _, bad := range []Options{{Every: time.Millisecond, Notice: time.Minute}, {Every: time.Hour, Notice: time.Minute}, {Every: time.Second, Notice: time.Second}, {Every: time.Second, Notice: 25 * time.Hour}} {
		if _, err := New(bad); err == nil {
			t.Errorf("%v and %v are legal", bad.Every, bad.Notice)
		}
	}
}
