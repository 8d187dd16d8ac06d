package gpushare

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// t4Node returns a GPUNode of T4s with 4 slots each.
func t4Node(name string, count int) *v1alpha1.GPUNode {
	g := gpuNode(name, count)
	for i := range g.Status.Devices {
		g.Status.Devices[i].Model, g.Status.Devices[i].Slots, g.Status.Devices[i].Memory = "T4", 4, resource.MustParse("16Gi")
	}
	return g
}

// ratedDesk has an A100 and a T4, on which bert reaches 300 for 3 an hour and 100 for a half.
func ratedDesk(t *testing.T) *desk {
	t.Helper()
	d := newDesk(t, gpuNode("n1", 1), t4Node("n2", 1))
	args := &config.GPUShareArgs{
		ModelCosts: []config.ModelCost{{Model: "A100", Cost: resource.MustParse("3")}, {Model: "T4", Cost: resource.MustParse("0.5")}},
		Throughputs: []config.Throughput{
			{Profile: "bert", Model: "A100", Share: 100, Rate: resource.MustParse("300")},
			{Profile: "bert", Model: "T4", Share: 100, Rate: resource.MustParse("100")},
		},
	}
	given, err := workloads.GivenCurves(args)
	must.OK(t, err)
	given.Own = d.plugin.state.curves.Own
	d.plugin.state.curves = given
	return d
}

// rated returns a pod of bert that asks for slots and wants a rate.
func rated(name string, slots int, rate string) *v1.Pod {
	return with(pod(name, slots), func(p *v1.Pod) {
		p.Labels = map[string]string{v1alpha1.LabelProfile: "bert"}
		p.Annotations = map[string]string{v1alpha1.AnnotationRate: rate}
	})
}

func TestRatesBecomeVariants(t *testing.T) {
	d := ratedDesk(t)
	p := rated("p", 1, "30")
	// 30 of 100 are 2 of 4 slots of a T4, half of 0.5; 30 of 300 are 1 of 10 slots of an A100, a tenth of 3.
	want := []vgpu.Variant{{Model: "T4", Compute: 300, Cost: 250000}, {Model: "A100", Compute: 100, Cost: 300000}}
	if diff := cmp.Diff(want, requestOf(d.preFilter(p)).Variants); diff != "" {
		t.Errorf("variants (-want +got):\n%s", diff)
	}
	limited := with(rated("q", 1, "30"), func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationModels] = "A100" })
	if diff := cmp.Diff(want[1:], requestOf(d.preFilter(limited)).Variants); diff != "" {
		t.Errorf("variants of a pod that names its model (-want +got):\n%s", diff)
	}
	expect(t, "reserved", d.reserve(d.preFilter(p), p, "n2"), "n2/GPU-n2-0")
	if a, _ := d.plugin.state.reservation(kube.UIDOf(p), "n2"); a.Containers[0].Share.Slots != 2 || a.Containers[0].Asked != 1 {
		t.Errorf("reserved %+v, want 2 slots of which 1 is asked for", a)
	}
}

func TestRatesThatPreFilterRefuses(t *testing.T) {
	d := ratedDesk(t)
	for name, c := range map[string]struct {
		pod  *v1.Pod
		says string
	}{
		"too high": {rated("p", 1, "301"), `metadata.annotations[tandem-gpu.io/rate]: "301" is not legal, ` +
			`profile bert reaches at most 300 (on a whole A100), the pod asks for 301; correct the annotation and the pod is tried again`},
		"malformed": {rated("p", 1, "fast"), `metadata.annotations[tandem-gpu.io/rate]: "fast" is not legal, it must be a decimal above 0, ` +
			`at most 1000000000000, with up to six decimals and without a sign or unit, for example 120 or 0.5; correct the annotation and the pod is tried again`},
		"a model that is not there": {with(pod("p", 1), func(p *v1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationModels: "H100"} }),
			`metadata.annotations[tandem-gpu.io/gpu-models]: "H100" is not legal, the cluster has none of these models but A100, T4; ` +
				`correct the annotation and the pod is tried again`},
	} {
		cs := framework.NewCycleState()
		if _, status := d.plugin.PreFilter(t.Context(), cs, c.pod, d.nodes); status.Message() != c.says {
			t.Errorf("%s: PreFilter says %q, want %q", name, status.Message(), c.says)
		}
	}
}

// A nominated pod keeps the slots that its rate takes from others, not those that it asks for.
func TestNominatedPodKeepsWhatItsRateTakes(t *testing.T) {
	d := ratedDesk(t)
	d.add(rated("nominated", 1, "75"), "n2")
	p := pod("p", 2)
	expect(t, "beside 3 of 4 slots", d.filter(d.preFilter(p), p, d.byName["n2"]), "largest free share is 1 of 4 slots")
}

// TestRatesProperty: arguments that are legal give a table, and it promises no share that does not reach the rate.
func TestRatesProperty(t *testing.T) {
	amounts := []string{"0.000001", "0.5", "1", "3.06", "7", "300", "1M", "0.0000001", "1T", "1e999999999"}
	shares := []int32{1, 33, 50, 99, 100, 101, 200, 12800}
	rapid.Check(t, func(t *rapid.T) {
		amount := func(label string) resource.Quantity {
			return resource.MustParse(rapid.SampledFrom(amounts).Draw(t, label))
		}
		args := &config.GPUShareArgs{
			Policy: "packed", BindTimeout: metav1.Duration{Duration: time.Minute}, PodsWithoutGPUs: config.SkipPods, MixHalfLife: metav1.Duration{Duration: time.Hour},
			ModelCosts:   []config.ModelCost{{Model: "A100", Cost: amount("cost")}, {Model: "T4", Cost: amount("cost")}},
			Interference: config.InterferenceArgs{Model: "default", Learning: config.LearningEnabled, MaxProfiles: 1}, Sharing: config.SharingAlways,
		}
		for range rapid.IntRange(1, 3).Draw(t, "points") {
			args.Throughputs = append(args.Throughputs, config.Throughput{
				Profile: "bert", Model: rapid.SampledFrom([]string{"A100", "T4"}).Draw(t, "model"),
				Share: rapid.SampledFrom(shares).Draw(t, "share"), Rate: amount("rate"),
			})
		}
		if errs := config.ValidateGPUShareArgs(args, []string{"packed"}, field.NewPath("args")); len(errs) > 0 {
			return
		}
		given, err := workloads.GivenCurves(args)
		if err != nil {
			t.Fatalf("legal arguments: %v", err)
		}
		want, ok := config.Millionths(amount("wanted"), config.MaxRate)
		if !ok {
			return
		}
		variants, miss := given.Rates.Variants(placement.Wanted{Profile: "bert", Rate: placement.Rate(want), Least: 1}, nil)
		if (len(variants) == 0) != (miss != nil) {
			t.Fatalf("%+v and %v", variants, miss)
		}
		for _, v := range variants {
			if v.Cost < 1 || given.Rates.At("bert", v.Model, v.Compute) < placement.Rate(want) {
				t.Fatalf("%+v reaches %v, wanted is %v", v, given.Rates.At("bert", v.Model, v.Compute), placement.Rate(want))
			}
		}
	})
}

func TestCorrectedRateIsTriedAgain(t *testing.T) {
	before := rated("p", 1, "30")
	for name, change := range map[string]func(*v1.Pod){
		"rate":    func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationRate] = "20" },
		"models":  func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationModels] = "T4" },
		"profile": func(p *v1.Pod) { p.Labels[v1alpha1.LabelProfile] = "gpt" },
		"promise": func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationMaxSlowdown] = "1.2" },
		"latency": func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationMaxLatency] = "40ms" },
	} {
		if hint, err := afterCorrection(klog.Background(), before, before, with(before.DeepCopy(), change)); err != nil || hint != fwk.Queue {
			t.Errorf("%s: hint %v, %v; want the pod tried again", name, hint, err)
		}
	}
	if hint, _ := afterCorrection(klog.Background(), before, before, before.DeepCopy()); hint != fwk.QueueSkip {
		t.Errorf("nothing changed: hint %v", hint)
	}
}

// curves returns a profile of bert with points: model, share in percent, rate or latency ("" for none).
func curves(points ...[4]string) *v1alpha1.WorkloadProfile {
	p := declared("bert", 50, 50)
	for _, point := range points {
		share, err := strconv.ParseInt(point[1], 10, 32)
		if err != nil {
			panic(err)
		}
		t := v1alpha1.ProfileThroughput{Model: point[0], SharePercent: int32(share)}
		if point[2] != "" {
			t.Rate = new(resource.MustParse(point[2]))
		}
		if point[3] != "" {
			latency, err := time.ParseDuration(point[3])
			if err != nil {
				panic(err)
			}
			t.Latency = &metav1.Duration{Duration: latency}
		}
		p.Spec.Throughputs = append(p.Spec.Throughputs, t)
	}
	return p
}

// The snapshot has of a waiting pod what its rate takes on each model, as it is tried: kubectl tandem why asks where that fits. If nothing
// reaches the rate, the request is the pod's own.
func TestSnapshotOfRates(t *testing.T) {
	d := ratedDesk(t) // 300 on an A100 for 3, 100 on a T4 for 0.5
	for rate, want := range map[string][]snapshot.ModelRequest{
		"30":   {{Model: "T4", Compute: 300, Cost: 250000}, {Model: "A100", Compute: 100, Cost: 300000}},
		"1000": nil,
	} {
		p := rated("p-"+rate, 1, rate)
		d.plugin.pending.add(p)
		pending, _ := d.plugin.SnapshotPending(10, noGang)
		if diff := cmp.Diff(want, pending[0].Request.Models); diff != "" || len(pending) != 1 {
			t.Errorf("rate %s, %d pods wait (-want +got):\n%s", rate, len(pending), diff)
		}
		d.plugin.pending.remove(p)
	}
}

// The rates of a WorkloadProfile count for models of which the arguments say nothing.
func TestRatesOfProfilesAndArguments(t *testing.T) {
	d := ratedDesk(t) // 300 on an A100 for 3, 100 on a T4 for 0.5
	d.declare(curves([4]string{"A100", "100", "600", ""}))
	want := []vgpu.Variant{{Model: "T4", Compute: 300, Cost: 250000}, {Model: "A100", Compute: 100, Cost: 300000}}
	if diff := cmp.Diff(want, requestOf(d.preFilter(rated("p", 1, "30"))).Variants); diff != "" {
		t.Errorf("the arguments have both models (-want +got):\n%s", diff)
	}
	var err error
	if d.plugin.state.curves.Rates, err = placement.NewRates([]placement.Throughput{
		{Profile: "bert", Model: "T4", Share: vgpu.WholeGPU, Rate: 100_000_000},
	}, d.plugin.state.curves.Prices); err != nil {
		t.Fatal(err)
	}
	want[1] = vgpu.Variant{Model: "A100", Compute: 50, Cost: 300000} // a twentieth is a slot all the same
	if diff := cmp.Diff(want, requestOf(d.preFilter(rated("p", 1, "30"))).Variants); diff != "" {
		t.Errorf("the arguments have one model (-want +got):\n%s", diff)
	}
	other := with(rated("p", 1, "150"), func(p *v1.Pod) { p.Namespace = "other" })
	_, status := d.plugin.PreFilter(t.Context(), framework.NewCycleState(), other, d.nodes)
	expect(t, "a pod of another namespace", status.Message(), `metadata.annotations[tandem-gpu.io/rate]: "150" is not legal, `+
		`profile bert reaches at most 100 (on a whole T4), the pod asks for 150; correct the annotation and the pod is tried again`)
}

func TestLatencyBecomesVariants(t *testing.T) {
	d := ratedDesk(t)
	within := func(latency string) *v1.Pod {
		return with(rated("p", 1, "30"), func(p *v1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationMaxLatency: latency} })
	}
	refused := func(p *v1.Pod) string {
		_, status := d.plugin.PreFilter(t.Context(), framework.NewCycleState(), p, d.nodes)
		return status.Message()
	}
	expect(t, "nothing declared", refused(within("40ms")), `metadata.annotations[tandem-gpu.io/max-latency]: "40ms" is not legal, `+
		`the WorkloadProfile default/bert has no latencies, or does not exist; correct the annotation and the pod is tried again`)
	d.declare(curves([4]string{"A100", "100", "", "10ms"}, [4]string{"T4", "100", "", "20ms"}))
	// 40 ms are a quarter of an A100, three slots of ten, for 3 · 0.3; and half of a T4 for 0.5 · 0.5.
	want := []vgpu.Variant{{Model: "T4", Compute: 500, Cost: 250000}, {Model: "A100", Compute: 250, Cost: 900000}}
	if diff := cmp.Diff(want, requestOf(d.preFilter(within("40ms"))).Variants); diff != "" {
		t.Errorf("variants (-want +got):\n%s", diff)
	}
	expect(t, "too fast", refused(within("9ms")), `metadata.annotations[tandem-gpu.io/max-latency]: "9ms" is not legal, `+
		`profile bert takes at least 10ms (on a whole A100); correct the annotation and the pod is tried again`)
	both := within("40ms")
	both.Annotations[v1alpha1.AnnotationRate] = "30"
	expect(t, "both", refused(both), `metadata.annotations[tandem-gpu.io/max-latency]: "40ms" is not legal, `+
		`it stands beside tandem-gpu.io/rate, a pod has one of both; correct the annotation and the pod is tried again`)
}

// The curves of a namespace give its pods no slot that they do not ask for, and that their quota does not count, where no administrator
// allows it. Those of the arguments do.
func TestOwnCurvesGiveWhatIsCharged(t *testing.T) {
	d := ratedDesk(t)
	own := curves([4]string{"A100", "100", "300", "10ms"}, [4]string{"A100", "200", "600", "5ms"}, [4]string{"V100", "100", "10", ""})
	own.Name, own.Namespace = "mine", "charged"
	d.declare(own)
	wants := func(slots int, key, value string) *v1.Pod {
		return with(rated("p", slots, "0"), func(p *v1.Pod) {
			p.Namespace, p.Labels, p.Annotations = "charged", map[string]string{v1alpha1.LabelProfile: "mine"}, map[string]string{key: value}
		})
	}
	const text = "by the curves of WorkloadProfile charged/mine it takes %d slots at least, and the pod asks for %d, which its quota counts: ask for %d, or have an administrator " +
		"label the namespace tandem-gpu.io/own-curves=allowed"
	for _, test := range []struct {
		pod    *v1.Pod
		needed int
	}{
		{wants(1, v1alpha1.AnnotationRate, "30"), 0}, // a tenth
		{wants(1, v1alpha1.AnnotationRate, "31"), 2},
		{wants(1, v1alpha1.AnnotationRate, "300"), 10},
		{wants(10, v1alpha1.AnnotationRate, "300"), 0},
		{wants(1, v1alpha1.AnnotationMaxLatency, "10ms"), 10},
		{wants(10, v1alpha1.AnnotationMaxLatency, "10ms"), 0},
	} {
		_, status := d.plugin.PreFilter(t.Context(), framework.NewCycleState(), test.pod, d.nodes)
		asked := test.pod.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU]
		if want := fmt.Sprintf(text, test.needed, asked.Value(), test.needed); test.needed == 0 && !status.IsSuccess() || test.needed > 0 && !strings.Contains(status.Message(), want) {
			t.Errorf("%v, %v: %s", asked.Value(), test.pod.Annotations, status.Message())
		}
	}
	ours := with(rated("q", 1, "150"), func(p *v1.Pod) { p.Namespace = "charged" }) // bert is of the arguments
	if got := requestOf(d.preFilter(ours)).Variants; len(got) != 1 || got[0].Compute != 500 {
		t.Errorf("by the administrator's curve: %+v", got)
	}
}

// A pod that no curve serves is told which curves of its profile do not count: those that fall, and those of models that the cluster does not have.
func TestUnusableCurvesAreNamed(t *testing.T) {
	d := ratedDesk(t)
	own := curves([4]string{"A100", "50", "200", "5ms"}, [4]string{"A100", "100", "100", "10ms"}, [4]string{"T-4", "100", "300", ""}, [4]string{"NVIDIA GB300", "100", "300", ""})
	own.Name = "mine"
	d.declare(own)
	for key, value := range map[string]string{v1alpha1.AnnotationRate: "30", v1alpha1.AnnotationMaxLatency: "5ms"} {
		p := with(rated("p", 1, "0"), func(p *v1.Pod) {
			p.Labels, p.Annotations = map[string]string{v1alpha1.LabelProfile: "mine"}, map[string]string{key: value}
		})
		_, status := d.plugin.PreFilter(t.Context(), framework.NewCycleState(), p, d.nodes)
		message := strings.ReplaceAll(status.Message(), "%%", "%") // the framework formats reasons
		for _, want := range []string{
			"these curves of WorkloadProfile default/mine do not count: spec.throughputs: the rate on A100 at 100% is worse than at 50%", "a larger share must not be slower",
			`no GPU of the cluster has the model "NVIDIA GB300", those of the cluster are A100, T4`, `no GPU of the cluster has the model "T-4", did you mean "T4"`,
		} {
			if !strings.Contains(message, want) {
				t.Errorf("%s: %s\nwant %s", key, message, want)
			}
		}
	}
}

// A pod that waits since its namespace's own curves are not allowed is placed when an administrator allows them, without a change of its own.
func TestAllowedCurvesHavePodsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		namespaces := c.client.CoreV1().Namespaces()
		label := func(name, value string) {
			t.Helper()
			n := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{workloads.LabelOwnCurves: value}}}
			_, err := namespaces.Update(t.Context(), n, metav1.UpdateOptions{})
			if apierrors.IsNotFound(err) {
				_, err = namespaces.Create(t.Context(), n, metav1.CreateOptions{})
			}
			must.OK(t, err)
		}
		label("default", "")
		own := curves([4]string{"A100", "100", "300", ""})
		own.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(own)
		must.OK(t, err)
		_, err = c.dynamic.Resource(v1alpha1.WorkloadProfiles).Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		must.OK(t, err)
		c.createPod(rated("p", 1, "100"))
		c.awaitPending("p", "own-curves")
		for _, other := range []func(){func() { label("other", workloads.OwnCurvesAllowed) }, func() { label("default", "no") }} {
			other()
			time.Sleep(10 * time.Second)
			c.awaitPending("p", "own-curves")
		}
		label("default", workloads.OwnCurvesAllowed)
		time.Sleep(2 * activationPause)
		if p := c.await("p", "it is seen", func(*v1.Pod) bool { return true }); p.Spec.NodeName != "n1" {
			t.Errorf("the pod waits: %s", fakecluster.Message(p))
		}
	})
}

// A pod that wants no rate would rather have the model on which it does the most for the price, and goes elsewhere when that
// is full.
func TestPodsPreferTheModelThatSuitsThem(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), t4Node("n2", 1))
	d.plugin.crowding.always = true
	p := func(name string) *v1.Pod {
		return with(pod(name, 2), func(p *v1.Pod) { p.Labels = map[string]string{v1alpha1.LabelProfile: "bert"} })
	}
	preferences := func() []vgpu.Preference { return requestOf(d.preFilter(p("p"))).Preferences }
	if got := preferences(); got != nil {
		t.Errorf("nothing is declared and the pod prefers %v", got)
	}
	// Without prices a device is as dear as another: 100 of a T4 are a third of 300.
	d.declare(curves([4]string{"A100", "100", "300", ""}, [4]string{"T4", "100", "100", ""}))
	if diff := cmp.Diff([]vgpu.Preference{{Model: "T4", Loss: 667}}, preferences()); diff != "" {
		t.Errorf("without prices (-want +got):\n%s", diff)
	}
	// 100 an hour for 3, and 200 for 0.5: an A100 gives half as much for the price.
	d.plugin.state.curves.Prices = map[string]int64{"A100": 3_000_000, "T4": 500_000}
	if diff := cmp.Diff([]vgpu.Preference{{Model: "A100", Loss: 500}}, preferences()); diff != "" {
		t.Errorf("with prices (-want +got):\n%s", diff)
	}
	limited := with(p("p"), func(p *v1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationModels: "A100"} })
	if got := requestOf(d.preFilter(limited)).Preferences; got != nil {
		t.Errorf("a pod that names its model prefers %v", got)
	}
	cs := d.preFilter(p("p"))
	if a, b := d.score(cs, "n1"), d.score(cs, "n2"); a >= b {
		t.Errorf("the A100 scores %d, the T4 %d", a, b)
	}
	wanted := requestOf(d.preFilter(with(p("p"), func(p *v1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationRate: "30"} })))
	if wanted.Preferences != nil || len(wanted.Variants) != 2 {
		t.Errorf("a pod that wants a rate has %+v", wanted)
	}
}

func (d *desk) score(cs fwk.CycleState, node string) int64 {
	d.t.Helper()
	score, status := d.plugin.Score(d.t.Context(), cs, nil, d.byName[node])
	if !status.IsSuccess() {
		d.t.Fatal(status)
	}
	return score
}
