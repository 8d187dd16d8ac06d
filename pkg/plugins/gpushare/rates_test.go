package gpushare

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
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
	rates, err := givenRates(&config.GPUShareArgs{
		ModelCosts: []config.ModelCost{{Model: "A100", Cost: resource.MustParse("3")}, {Model: "T4", Cost: resource.MustParse("0.5")}},
		Throughputs: []config.Throughput{
			{Profile: "bert", Model: "A100", Share: 100, Rate: resource.MustParse("300")},
			{Profile: "bert", Model: "T4", Share: 100, Rate: resource.MustParse("100")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.plugin.state.rates = rates
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
	if a, _ := d.plugin.state.reservation(uidOf(p), "n2"); a.Containers[0].Share.Slots != 2 || a.Containers[0].Asked != 1 {
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
		rates, err := givenRates(args)
		if err != nil {
			t.Fatalf("legal arguments: %v", err)
		}
		want, ok := config.Millionths(amount("wanted"), config.MaxRate)
		if !ok {
			return
		}
		variants, miss := rates.Variants(placement.Wanted{Profile: "bert", Rate: placement.Rate(want), Least: 1}, nil)
		if (len(variants) == 0) != (miss != nil) {
			t.Fatalf("%+v and %v", variants, miss)
		}
		for _, v := range variants {
			if v.Cost < 1 || rates.At("bert", v.Model, v.Compute) < placement.Rate(want) {
				t.Fatalf("%+v reaches %v, wanted is %v", v, rates.At("bert", v.Model, v.Compute), placement.Rate(want))
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
	} {
		if hint, err := afterCorrection(klog.Background(), before, before, with(before.DeepCopy(), change)); err != nil || hint != fwk.Queue {
			t.Errorf("%s: hint %v, %v; want the pod tried again", name, hint, err)
		}
	}
	if hint, _ := afterCorrection(klog.Background(), before, before, before.DeepCopy()); hint != fwk.QueueSkip {
		t.Errorf("nothing changed: hint %v", hint)
	}
}
