package gpushare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// declared returns a WorkloadProfile of namespace default that declares a use of all GPU models.
func declared(name string, sm, bandwidth int32) *v1alpha1.WorkloadProfile {
	p := &v1alpha1.WorkloadProfile{}
	p.Namespace, p.Name = "default", name
	p.Spec.Uses = []v1alpha1.DeclaredUse{{Model: v1alpha1.AnyModel, SMUtilizationPercent: &sm, MemoryBandwidthPercent: &bandwidth}}
	return p
}

// declare tells the plugin of a profile, as its informer does, and lets the time pass after which it counts.
func (d *desk) declare(p *v1alpha1.WorkloadProfile) {
	d.plugin.readProfile(d.t.Context(), nil, p, false)
	d.later += newsPause
}

// tenant returns a pod of a workload that may burst to its whole device: two busy ones slow each other down by more than a
// half. "" for a workload of which nobody knows anything.
func tenant(name, workload string, slots int) *v1.Pod {
	return with(pod(name, slots), func(p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationComputeLimit: "100"}
		if workload != "" {
			p.Labels = map[string]string{v1alpha1.LabelProfile: workload}
		}
	})
}

// tolerating gives the pod a max-slowdown.
func tolerating(slowdown string, p *v1.Pod) *v1.Pod {
	return with(p, func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationMaxSlowdown] = slowdown })
}

// runs places the pod on a device as if it were bound there.
func (d *desk) runs(p *v1.Pod, node string, device int) *v1.Pod {
	d.t.Helper()
	slots := p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU]
	a := share(p, node, fmt.Sprintf("GPU-%s-%d", node, device), vgpu.Slots(slots.Value()))
	a.Containers[0].Share.ComputeLimit = vgpu.WholeGPU
	kept := p.Annotations
	on := bound(d.t, p, a)
	for key, value := range kept {
		on.Annotations[key] = value
	}
	return d.add(on, node)
}

// stopClock makes the plugin go by a clock that stands still, and makes a rule at its time.
func (d *desk) stopClock() *ticking {
	clock := newTicking()
	d.plugin.now = clock.now
	d.usual(d.plugin.usual().Kinds()...)
	return clock
}

// tries returns what Filter says of a node to the pod, "" where it fits.
func (d *desk) tries(p *v1.Pod, node string) string {
	d.t.Helper()
	return d.filter(d.preFilter(p), p, d.byName[node])
}

const broken = "a max-slowdown would break on the GPUs that have room"

func TestPromisesOfBothSides(t *testing.T) {
	for name, c := range map[string]struct {
		resident, newcomer *v1.Pod
		want               string
	}{
		"nobody minds":              {tenant("r", "heavy", 5), tenant("n", "heavy", 5), ""},
		"the newcomer":              {tenant("r", "heavy", 5), tolerating("1.15", tenant("n", "heavy", 5)), broken},
		"the resident":              {tolerating("1.15", tenant("r", "heavy", 5)), tenant("n", "heavy", 5), broken},
		"both":                      {tolerating("1.15", tenant("r", "heavy", 5)), tolerating("1.15", tenant("n", "heavy", 5)), broken},
		"it tolerates much":         {tenant("r", "heavy", 5), tolerating("3", tenant("n", "heavy", 5)), ""},
		"a light neighbour":         {tolerating("1.15", tenant("r", "light", 5)), tolerating("1.15", tenant("n", "light", 5)), ""},
		"an unknown neighbour":      {tenant("r", "", 5), tolerating("1.15", tenant("n", "heavy", 5)), broken},
		"an unknown newcomer":       {tolerating("1.15", tenant("r", "heavy", 5)), tenant("n", "", 5), broken},
		"unknown, without promise":  {tenant("r", "", 5), tenant("n", "", 5), ""},
		"too large for the rest":    {tenant("r", "heavy", 5), tolerating("1.15", tenant("n", "heavy", 6)), "largest free share is 5 of 10 slots"},
		"a malformed one that runs": {tolerating("0.9", tenant("r", "heavy", 5)), tenant("n", "heavy", 5), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, gpuNode("n1", 1))
			d.declare(declared("heavy", 100, 60))
			d.declare(declared("light", 20, 10))
			d.runs(c.resident, "n1", 0)
			expect(t, "Filter", d.tries(c.newcomer, "n1"), c.want)
		})
	}
}

// A promise counts where nothing else is known: of the pods that run, whoever comes.
func TestPromiseAmongUnknownPods(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	d.runs(tolerating("1.15", tenant("r", "", 5)), "n1", 0)
	expect(t, "Filter", d.tries(tenant("n", "", 5), "n1"), broken)
}

// The refusal names the neighbour, and in-tree preemption learns that evictions help.
func TestRefusalNamesTheNeighbour(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1))
	d.declare(declared("heavy", 100, 60))
	d.runs(tenant("trainer", "heavy", 5), "n1", 0)
	d.runs(tolerating("1.2", tenant("server", "heavy", 5)), "n2", 0)
	nearest := func(p *v1.Pod, against string) string {
		cs, statuses := d.preFilter(p), framework.NewDefaultNodeToStatus()
		for _, n := range d.nodes {
			status := d.plugin.Filter(t.Context(), cs, p, n)
			if status.Code() != fwk.Unschedulable || status.Message() != broken {
				t.Fatalf("Filter = %v", status)
			}
			status.SetPlugin(Name)
			if n.Node().Name == against {
				statuses.Set(against, status)
			}
		}
		_, status := d.plugin.PostFilter(t.Context(), cs, p, statuses)
		return status.Message()
	}
	asks := tolerating("1.15", tenant("asks", "heavy", 5))
	got := nearest(asks, "n1")
	if want := "nearest GPU: on n1/g0 a slowdown of 1."; !strings.HasPrefix(got, want) {
		t.Errorf("PostFilter says %q, want it to begin with %q", got, want)
	}
	if want := "is predicted for the pod beside default/trainer; its max-slowdown is 1.15"; !strings.HasSuffix(got, want) {
		t.Errorf("PostFilter says %q, want it to end with %q", got, want)
	}
	got = nearest(asks, "n2")
	if want := "default/server"; !strings.Contains(got, want) || strings.Contains(got, "%") {
		t.Errorf("PostFilter says %q, want %s in it", got, want)
	}
}

// What is declared counts for the next pod, and the promise of a pod that leaves no more.
func TestDeclarationsAndDeparturesCount(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	resident := d.runs(tenant("r", "light", 5), "n1", 0)
	asks := tolerating("1.15", tenant("asks", "light", 5))
	expect(t, "both are unknown", d.tries(asks, "n1"), broken)
	d.declare(declared("light", 20, 10))
	expect(t, "both are light", d.tries(asks, "n1"), "")
	d.declare(declared("light", 100, 90))
	expect(t, "both are heavy", d.tries(asks, "n1"), broken)
	d.remove(resident, "n1")
	expect(t, "alone", d.tries(asks, "n1"), "")
	d.runs(asks, "n1", 0)
	plain := tenant("plain", "light", 5)
	expect(t, "beside a promise", d.tries(plain, "n1"), broken)
	d.plugin.forgetProfile(t.Context(), declared("light", 0, 0))
	d.later += newsPause
	expect(t, "beside a promise, unknown again", d.tries(plain, "n1"), broken)
}

// While nothing is known and nothing promised, neighbours make no difference and cost nothing.
func TestUnknownPodsAreNotAffected(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2))
	d.runs(tenant("r", "", 5), "n1", 0)
	p := tenant("p", "nobody-declared-it", 5)
	d.plugin.state.learner.Pod(p) // it has a number, and nothing more
	cs := d.preFilter(p)
	if r := requestOf(cs); r.Workload != 0 || d.plugin.state.ruling().among != nil {
		t.Errorf("workload %d, neighbours %+v; want neither", r.Workload, d.plugin.state.ruling().among)
	}
	expect(t, "packed beside the other", d.reserve(cs, p, "n1"), "n1/GPU-n1-0")
	d.unreserve(cs, p, "n1")
	// A profile of others changes nothing for pods without one.
	d.declare(declared("heavy", 100, 60))
	cs = d.preFilter(p)
	if r := requestOf(cs); r.Workload != 0 || d.plugin.state.ruling().among == nil {
		t.Errorf("workload %d, neighbours %+v; want neighbours for others", r.Workload, d.plugin.state.ruling().among)
	}
	expect(t, "still packed", d.reserve(cs, p, "n1"), "n1/GPU-n1-0")
}

// A pod of a known workload has a device for itself until they are scarce.
func TestSharingWhenScarce(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 3))
	d.declare(declared("light", 20, 10))
	place := func(name string) string {
		p := tenant(name, "light", 4)
		cs := d.preFilter(p)
		got := d.reserve(cs, p, "n1")
		d.assume(p, "n1")
		return got
	}
	expect(t, "first", place("a"), "n1/GPU-n1-0")
	expect(t, "one for itself", place("b"), "n1/GPU-n1-1")
	expect(t, "the last idle one", place("c"), "n1/GPU-n1-2")
	expect(t, "none is idle", place("d"), "n1/GPU-n1-0")
	if !d.plugin.state.ruling().scarce || d.gauge("scarce") != 1 {
		t.Error("GPUs are not scarce")
	}
}

func TestSharingAlways(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2))
	d.plugin.crowding.always = true
	d.declare(declared("light", 20, 10))
	d.runs(tenant("r", "light", 5), "n1", 0)
	p := tenant("p", "light", 5)
	expect(t, "packed", d.reserve(d.preFilter(p), p, "n1"), "n1/GPU-n1-0")
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
		t.Fatalf("the workload of a pod that nobody told of is %d", got)
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

// Where nothing keeps tenants to their limits, everybody may use all of a device.
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

// The shortlist by neighbours is that of all nodes compared one by one.
func TestShortlistByNeighbours(t *testing.T) {
	const nodes = 150
	gpuNodes := make([]*v1alpha1.GPUNode, nodes)
	for i := range gpuNodes {
		gpuNodes[i] = gpuNode(fmt.Sprintf("node-%03d", i), 2)
	}
	d := newDesk(t, gpuNodes...)
	d.plugin.crowding.always = true
	workloads := []string{"", "heavy", "middling", "light"}
	for i, w := range workloads[1:] {
		d.declare(declared(w, 100-30*int32(i), 70-30*int32(i)))
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, g := range gpuNodes {
		for i := range g.Status.Devices {
			p := tenant(fmt.Sprintf("%s-%d", g.Name, i), workloads[random.IntN(len(workloads))], 1+random.IntN(6))
			if random.IntN(4) == 0 {
				tolerating("1.3", p)
			}
			d.runs(p, g.Name, i)
		}
	}
	for i, w := range workloads {
		p := tolerating([]string{"4", "1.5", "1.3", "1.1"}[i], tenant(fmt.Sprintf("asks-%d", i), w, 3))
		want := rankedBy(d, p)
		if len(want) < 10 || len(want) == nodes {
			t.Fatalf("%d nodes take a pod of %q", len(want), w)
		}
		got := shortlistOf(d, framework.NewCycleState(), p)
		if diff := cmp.Diff(got.Len(), min(shortlistSize, len(want))); diff != "" || !got.HasAll(want[:min(shortlistSize, len(want))]...) {
			t.Errorf("the shortlist of a pod of %q has %d nodes and not the best", w, got.Len())
		}
	}
}

// rankedBy returns the nodes that take the pod, the best first.
func rankedBy(d *desk, p *v1.Pod) []string {
	cs := d.preFilter(p)
	r := requestOf(cs)
	rule := d.plugin.state.ruling()
	var scores fwk.NodeScoreList
	for _, n := range d.nodes {
		if o := d.plugin.state.occupancyOf(n); rule.Fit(o.ledger, r) == nil {
			scores = append(scores, fwk.NodeScore{Name: n.Node().Name, Score: placement.Score(o.ledger, r, rule.Policy)})
		}
	}
	slices.SortFunc(scores, better)
	names := make([]string, len(scores))
	for i := range scores {
		names[i] = scores[i].Name
	}
	return names
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

// What the scheduler itself wrote or removed is no news: it knows that already.
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
		"nobody can decode it":      {func() { d.plugin.readProfile(t.Context(), nil, &unstructured.Unstructured{}, true) }, false},
	} {
		d.plugin.news.clear()
		d.plugin.pending.asked()
		if c.tell(); d.plugin.news.any() != c.want || d.plugin.pending.promised != c.want {
			t.Errorf("%s: news %v, pods activated %v; want %v", what, d.plugin.news.any(), d.plugin.pending.promised, c.want)
		}
	}
}

// What was predicted for a pod is counted once, when its devices are chosen.
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
	if got := d.plugin.pending.asked(); len(got) != 0 {
		t.Errorf("%v are tried again for nothing", got)
	}
	d.plugin.readProfile(t.Context(), nil, declared("light", 20, 10), false)
	d.plugin.pending.asked()
	refuse() // at once: the rule is too young to be replaced
	if got := d.plugin.pending.asked(); len(got) != 1 {
		t.Errorf("%v are tried again, want the pod that was refused", got)
	}
}
