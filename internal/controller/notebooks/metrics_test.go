package notebooks

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/tandem-gpu/tandem/test/must"
)

func value(t testing.TB, c prometheus.Collector) float64 {
	t.Helper()
	return testutil.ToFloat64(c)
}

// What is served is what the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	w := newWorld(t)
	r := prometheus.NewRegistry()
	r.MustRegister(w.Collectors()...)
	served := map[string]string{}
	found, err := r.Gather()
	must.OK(t, err)
	for _, f := range found {
		names := []string{}
		for _, l := range f.Metric[0].Label {
			names = append(names, l.GetName())
		}
		served[f.GetName()] = strings.ToLower(f.GetType().String()) + " " + strings.Join(names, ",") + " " + f.GetHelp()
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
