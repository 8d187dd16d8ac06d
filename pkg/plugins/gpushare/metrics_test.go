package gpushare

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/servedmetrics"
)

// The plugin serves the metrics that the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	d.usual(weighing(slots(1), 1))
	d.preFilter(pod("asker", 1))
	m := newMetrics()
	r := metrics.NewKubeRegistry()
	r.MustRegister(m.all()...)
	r.CustomMustRegister(newGauges(d.plugin))
	m.refused("NoRoom")
	m.bound(nil)
	m.rules.WithLabelValues(causeMix).Inc()
	m.ended.WithLabelValues(endStopped).Inc()
	servedmetrics.Check(t, r, servedmetrics.Alpha, Families())
}

// gauge returns the value of a gauge without labels, NaN where it is absent.
func (d *desk) gauge(name string) float64 {
	d.t.Helper()
	r := metrics.NewKubeRegistry()
	r.CustomMustRegister(newGauges(d.plugin))
	families, err := r.Gather()
	must.OK(d.t, err)
	for _, f := range families {
		if f.GetName() == prefix+name {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	return math.NaN()
}

// n1 has devices of 10 slots with 4 and 10 free: 1400 of its 2000 milli-GPU. n2's device is sick, and n3 takes no pods:
// they do not count.
func TestFragmentationRatio(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2), gpuNode("n2", 1), gpuNode("n3", 3))
	sick := gpuNode("n2", 1)
	sick.Status.Devices[0].Health = v1alpha1.Unhealthy
	d.setGPUNode(sick)
	d.plugin.state.replace("n3", d.plugin.state.nodes["n3"].empty, notReady)
	check := func(when string, fragmented, allocated, kinds float64) {
		t.Helper()
		d.preFilter(pod("asker", 1))
		got := []float64{d.gauge("fragmentation_ratio"), d.gauge("allocated_ratio"), d.gauge("usual_requests")}
		if diff := cmp.Diff([]float64{fragmented, allocated, kinds}, got, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s: fragmentation, allocated, kinds (-want +got):\n%s", when, diff)
		}
	}
	check("nothing is usual", math.NaN(), 0, 0)
	d.usual(weighing(slots(20), 1))
	check("two whole devices are usual, and free", 0, 0, 1)
	d.on("n1", "a", 6, "1", "1Gi")
	check("one is not free: 1400 are lost", 0.7, 0.3, 1)
	// 5 slots lose the 400 of the first device, 20 slots and none lose 1400: (2·400 + 1400 + 1400) / 4 = 900.
	d.usual(weighing(slots(5), 2), weighing(slots(20), 1), weighing(slots(0), 1))
	check("three kinds", 0.45, 0.3, 3)
	d.usual(weighing(slots(1), 95), weighing(slots(20), 5))
	check("a rarity", 0, 0.3, 1)
	d.usual(weighing(fragmentation.Kind{MilliCPU: 4000, Memory: 1 << 45, Slots: 1}, 1)) // no node has the memory
	check("4 cores are there", 0, 0.3, 1)
	d.on("n1", "beside", 0, "60", "1Gi") // of 64, one of which has gone to a
	check("3 cores are left: 1400 are lost", 0.7, 0.3, 1)
	d.plugin.state.replace("n1", nil, noGPUs)
	check("no GPU", math.NaN(), math.NaN(), 1)
}

// The learner hears of pods, and of what their GPUs tell of them.
func TestLearnerGetsPods(t *testing.T) {
	d := newDesk(t)
	p := tenant("p", "bert", 1)
	if n := d.plugin.state.learner.Snapshot().Number(p); n != 0 {
		t.Fatalf("the learner knows a pod: workload %d", n)
	}
	d.tell(event{nil, p})
	if d.plugin.state.learner.Snapshot().Number(p) == 0 {
		t.Error("the learner does not know the pod")
	}
	g := gpuNode("n1", 1)
	g.Status.Devices[0].Tenants = []v1alpha1.GPUTenant{{UID: string(p.UID), SMUtilizationPercent: new(int32(300))}}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	must.OK(t, err)
	kept, err := condense(&unstructured.Unstructured{Object: raw})
	must.OK(t, err)
	d.plugin.readGPUNode(t.Context(), kept)
	r := prometheus.NewRegistry()
	r.MustRegister(d.plugin.state.learner.Collector())
	families, err := r.Gather()
	must.OK(t, err)
	absurd := 0.
	for _, f := range families {
		for _, m := range f.Metric {
			if len(m.Label) == 1 && m.Label[0].GetValue() == "absurd" {
				absurd += m.GetCounter().GetValue()
			}
		}
	}
	if absurd != 1 {
		t.Errorf("the learner was told %v absurd values, want the use of 300 percent", absurd)
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
		must.OK(t, err)
		kept, err := condense(&unstructured.Unstructured{Object: raw})
		must.OK(t, err)
		return d.plugin.readGPUNode(t.Context(), kept)
	}
	if !read() {
		t.Fatal("a new node is no news")
	}
	d.plugin.state.offered()
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
