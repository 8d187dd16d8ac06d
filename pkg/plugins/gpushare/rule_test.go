package gpushare

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// stopClock makes the plugin go by a clock that stands still, and makes a rule at its time.
func (d *desk) stopClock() *ticking {
	clock := newTicking()
	d.plugin.now = clock.now
	d.usual(d.plugin.usual().Kinds()...)
	return clock
}

// A pod that was given devices before the scheduler heard of its workload has it as soon as it is known.
func TestNamelessPodsGetTheirWorkload(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	resident := d.runs(tenant("r", "late", 5), "n1", 0)
	workload := func() uint32 {
		d.preFilter(pod("asker", 1))
		return d.plugin.state.nodes["n1"].cached.Load().ledger.Assignments()[0].Workload
	}
	if got := workload(); got != 0 {
		t.Fatalf("the workload of a pod that is not known is %d", got)
	}
	d.declare(declared("other", 20, 10))
	d.plugin.state.learner.Pod(resident)
	d.declare(declared("late", 20, 10))
	if got := workload(); got == 0 {
		t.Error("the workload is not known")
	}
	before := d.plugin.state.nodes["n1"].cached.Load()
	d.declare(declared("another", 20, 10))
	if workload(); d.plugin.state.nodes["n1"].cached.Load() != before {
		t.Error("an occupancy without nameless pods was made anew")
	}
}

// If nothing keeps tenants to their limits, each may use all of a device.
func TestUnenforcedLimitsDoNotCount(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	d.declare(declared("heavy", 100, 60))
	p := with(pod("r", 5), func(p *v1.Pod) { p.Labels = map[string]string{v1alpha1.LabelProfile: "heavy"} })
	d.add(with(bound(t, p, share(p, "n1", "GPU-n1-0", 5)), func(p *v1.Pod) { p.Labels = map[string]string{v1alpha1.LabelProfile: "heavy"} }), "n1")
	asks := with(pod("asks", 5), func(p *v1.Pod) {
		p.Labels = map[string]string{v1alpha1.LabelProfile: "heavy"}
		p.Annotations = map[string]string{v1alpha1.AnnotationMaxSlowdown: "1.2"}
	})
	expect(t, "halves with SMs of their own", d.tries(asks, "n1"), "")
	g := gpuNode("n1", 1)
	g.Status.Devices[0].Enforcement = v1alpha1.EnforcementNone
	d.plugin.state.setUnenforced("n1", unenforcedOf(g))
	d.declare(declared("heavy", 100, 61)) // a new rule
	expect(t, "halves of time", d.tries(asks, "n1"), broken)
}

func TestMalformedPromise(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	_, status := d.plugin.PreFilter(t.Context(), framework.NewCycleState(), tolerating("0.9", tenant("p", "", 5)), d.nodes)
	want := `metadata.annotations[tandem-gpu.io/max-slowdown]: "0.9" is not legal, it must be a decimal from 1 to 10 with up to three decimals`
	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.HasPrefix(status.Message(), want) {
		t.Errorf("PreFilter = %v, want %q", status, want)
	}
}

// A share in which the workload would fail on every model is refused, by what its owner declares of it.
func TestMemoryThatTheShareLacks(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), t4Node("n2", 1)) // half an A100 has 20 GiB, half a T4 8
	check := func(what, memory, want string, change func(*v1.Pod, *v1alpha1.WorkloadProfile)) {
		t.Helper()
		big := declared("big", 50, 50)
		if memory != "" {
			big.Spec.Uses[0].Memory = new(resource.MustParse(memory))
		}
		p := tenant("p", "big", 2)
		change(p, big)
		d.declare(big)
		_, status := d.plugin.PreFilter(t.Context(), framework.NewCycleState(), p, d.nodes)
		expect(t, what, status.Message(), want)
	}
	same := func(*v1.Pod, *v1alpha1.WorkloadProfile) {}
	check("nothing declared", "", "", same)
	check("enough on both", "8Gi", "", same) // a fifth of an A100 is 8 GiB, a half of a T4 too
	check("too much on both", "9Gi", `spec.containers[0].resources.limits[tandem-gpu.io/vgpu]: "2" is not legal, `+
		`WorkloadProfile default/big declares that it holds 9Gi of a device of A100, and the pod may use 8Gi there; `+
		`the field is immutable: the pod must be replaced`, same)
	check("a limit of its own", "9Gi", "", func(p *v1.Pod, _ *v1alpha1.WorkloadProfile) { p.Annotations[v1alpha1.AnnotationMemoryLimit] = "9Gi" })
	check("a limit that is too low", "20Gi", `metadata.annotations[tandem-gpu.io/memory-limit]: "16Gi" is not legal, `+
		`WorkloadProfile default/big declares that it holds 20Gi of a device of A100, and the pod may use 16Gi there; `+
		`correct the annotation and the pod is tried again`,
		func(p *v1.Pod, _ *v1alpha1.WorkloadProfile) { p.Annotations[v1alpha1.AnnotationMemoryLimit] = "16Gi" })
	check("one model is enough", "9Gi", "", func(_ *v1.Pod, w *v1alpha1.WorkloadProfile) { w.Spec.Uses[0].Model = "A100" })
	d = newDesk(t, gpuNode("n1", 1), t4Node("n2", 1)) // what is learned is read once
	check("what was measured does not count", "", "", func(_ *v1.Pod, w *v1alpha1.WorkloadProfile) {
		for _, model := range []string{"A100", "T4"} {
			w.Status.Learned = append(w.Status.Learned, v1alpha1.LearnedUse{
				Model: model, Memory: new(resource.MustParse("14Gi")), SoloObservations: 50,
			})
		}
	})
}

// Pods wait until the WorkloadProfiles are read.
func TestProfilesAreReadFirst(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	d.plugin.profiled.Store(false)
	_, status := d.plugin.PreFilter(t.Context(), framework.NewCycleState(), pod("p", 1), d.nodes)
	expect(t, "before", status.Message(), "the WorkloadProfiles are not read yet")
	d.plugin.profilesRead()
	expect(t, "after", d.tries(pod("p", 1), "n1"), "")
}

// A new rule costs a scoring of all nodes: something declared counts after a second for its own pods and after five for
// others, something learned after a minute.
func TestWhenTheRuleChanges(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 3))
	clock := d.stopClock()
	renewed := func(p *v1.Pod) bool {
		t.Helper()
		before := d.plugin.state.ruling()
		d.preFilter(p)
		return d.plugin.state.ruling() != before
	}
	check := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: a new rule %v, want %v", what, got, want)
		}
	}
	plain := pod("plain", 1)
	check("nothing changed", renewed(plain), false)
	d.declare(declared("bert", 100, 60))
	own := tenant("b", "bert", 1)
	check("at once", renewed(own), false)
	clock.Time = clock.Add(ownPause)
	check("after a second, for another pod", renewed(plain), false)
	check("after a second, for its own pod", renewed(own), true)
	d.declare(declared("bert", 90, 60))
	clock.Time = clock.Add(newsPause - 1)
	check("before five seconds", renewed(plain), false)
	clock.Time = clock.Add(1)
	check("after five seconds", renewed(plain), true)
	check("once", renewed(plain), false)
	learned := declared("bert", 90, 60)
	learned.Status.Learned = []v1alpha1.LearnedUse{{Model: "A100", CoRuns: 5, SensitivityMilli: 300, SureSensitivityMilli: 900}}
	d.plugin.readProfile(t.Context(), declared("bert", 90, 60), learned, false)
	clock.Time = clock.Add(rulePause - time.Second)
	check("something learned, before a minute", renewed(plain), false)
	if !d.plugin.outdated() {
		t.Error("the rule is not outdated")
	}
	clock.Time = clock.Add(time.Second)
	check("something learned, after a minute", renewed(plain), true)
	d.plugin.forgetProfile(t.Context(), learned)
	clock.Time = clock.Add(rulePause)
	check("nothing is known any more", renewed(plain), true)
	if d.plugin.state.ruling().among != nil {
		t.Error("there are neighbours, of whom nothing is known")
	}
	check("a promise matters at once", renewed(tolerating("2", tenant("p", "", 1))), true)
	check("it matters for a while", renewed(plain), false)
	clock.Time = clock.Add(rulePause)
	check("but not for ever", renewed(plain), true)
}

// A profile that the scheduler itself wrote or removed is no news: it knows that already.
func TestOwnProfilesAreNoNews(t *testing.T) {
	d := newDesk(t)
	made := declared("learned-0123456789abcdef", 0, 0)
	made.Labels, made.Spec = map[string]string{v1alpha1.LabelLearned: "true"}, v1alpha1.WorkloadProfileSpec{}
	for what, c := range map[string]struct {
		tell func()
		want bool
	}{
		"it was made":               {func() { d.plugin.readProfile(t.Context(), nil, made, false) }, false},
		"it was there at the start": {func() { d.plugin.readProfile(t.Context(), nil, made, true) }, true},
		"it was written":            {func() { d.plugin.readProfile(t.Context(), made, made.DeepCopy(), false) }, false},
		"it was removed":            {func() { d.plugin.forgetProfile(t.Context(), made) }, false},
		"a user declared something": {func() { d.plugin.readProfile(t.Context(), made, declared(made.Name, 5, 5), false) }, true},
		"a user removed that":       {func() { d.plugin.forgetProfile(t.Context(), cache.DeletedFinalStateUnknown{Obj: declared("x", 5, 5)}) }, true},
		"it cannot be decoded":      {func() { d.plugin.readProfile(t.Context(), nil, &unstructured.Unstructured{}, true) }, false},
	} {
		d.plugin.news.clear()
		d.plugin.pending.takeRequested()
		if c.tell(); d.plugin.news.any() != c.want || d.plugin.pending.promised != c.want {
			t.Errorf("%s: news %v, pods activated %v; want %v", what, d.plugin.news.any(), d.plugin.pending.promised, c.want)
		}
	}
}

// The plugin counts the predicted slowdown of a pod once, when it chooses the pod's devices.
func TestPredictedSlowdownIsCounted(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	r := metrics.NewKubeRegistry()
	r.MustRegister(d.plugin.metrics.all()...)
	counted := func() (uint64, float64) {
		t.Helper()
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == prefix+"predicted_slowdown_ratio" {
				return f.Metric[0].GetHistogram().GetSampleCount(), f.Metric[0].GetHistogram().GetSampleSum()
			}
		}
		return 0, 0
	}
	d.runs(tenant("r", "heavy", 5), "n1", 0)
	place := func(p *v1.Pod) fwk.CycleState {
		cs := d.preFilter(p)
		expect(t, p.Name, d.reserve(cs, p, "n1"), "n1/GPU-n1-0")
		return cs
	}
	p := tenant("p", "heavy", 2)
	d.unreserve(place(p), p, "n1")
	if count, _ := counted(); count != 0 {
		t.Errorf("nothing is known and %d predictions are counted", count)
	}
	d.declare(declared("heavy", 100, 60))
	cs := place(p)
	count, sum := counted()
	if count != 1 || sum < 1.5 || sum > 2 {
		t.Errorf("%d predictions of %v together, want one from 1.5 to 2", count, sum)
	}
	d.unreserve(cs, p, "n1")
	expect(t, "replayed", d.reserve(cs, p, "n1"), "n1/GPU-n1-0")
	if count, _ := counted(); count != 1 {
		t.Errorf("%d predictions are counted after a replay", count)
	}
}

// A refusal by a rule that is out of date is looked at again.
func TestRefusalsByAnOldRuleAreTriedAgain(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	d.runs(tenant("r", "light", 5), "n1", 0)
	asks := tolerating("1.15", tenant("asks", "light", 5))
	d.plugin.pending.add(asks)
	refuse := func() {
		cs, statuses := d.preFilter(asks), framework.NewDefaultNodeToStatus()
		status := d.plugin.Filter(t.Context(), cs, asks, d.nodes[0])
		statuses.Set("n1", status.WithPlugin(Name))
		d.plugin.PostFilter(t.Context(), cs, asks, statuses)
	}
	refuse()
	if got := d.plugin.pending.takeRequested(); len(got) != 0 {
		t.Errorf("%v are tried again for nothing", got)
	}
	d.plugin.readProfile(t.Context(), nil, declared("light", 20, 10), false)
	d.plugin.pending.takeRequested()
	refuse() // at once: the rule is too young to be replaced
	if got := d.plugin.pending.takeRequested(); len(got) != 1 {
		t.Errorf("%v are tried again, want the pod that was refused", got)
	}
}
