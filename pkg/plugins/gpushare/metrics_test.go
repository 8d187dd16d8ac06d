package gpushare

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// What is served is what the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	m := newMetrics()
	r := metrics.NewKubeRegistry()
	r.MustRegister(m.refusals, m.binds, m.retries, m.confirmed, m.rebuilds, m.misses)
	r.CustomMustRegister(newGauges(d.plugin))
	m.refused("NoRoom")
	m.bound(nil)
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

// A GPUNode of which only the measured use is new is no news: no cached occupancy goes, no pending pod is tried again.
func TestUseOfDevicesIsNoNews(t *testing.T) {
	d := newDesk(t)
	g := gpuNode("n1", 2)
	g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	read := func() bool {
		t.Helper()
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := condense(&unstructured.Unstructured{Object: raw})
		if err != nil {
			t.Fatal(err)
		}
		return d.plugin.readGPUNode(t.Context(), kept)
	}
	if !read() {
		t.Fatal("a new node is no news")
	}
	d.plugin.state.countOffers()
	before := d.plugin.state.nodes["n1"].epoch
	for percent := range int32(100) {
		g.Status.Devices[0].Usage = &v1alpha1.GPUUsage{
			SMUtilizationPercent: percent, MemoryBandwidthPercent: 100 - percent, MemoryUsed: *resource.NewQuantity(int64(percent)<<30, resource.BinarySI),
		}
		g.Status.Devices[1].ContextsUsed = percent
		if read() {
			t.Fatalf("a use of %d %% is news", percent)
		}
	}
	if after := d.plugin.state.nodes["n1"].epoch; after != before || d.plugin.state.offers == nil {
		t.Errorf("epoch %d became %d, offers %v: want nothing dropped", before, after, d.plugin.state.offers)
	}
	g.Status.Devices[0].Health, g.Status.Devices[0].Reason = v1alpha1.Unhealthy, "XID79"
	if !read() {
		t.Error("a sick device is no news")
	}
}
