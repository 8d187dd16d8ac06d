package gpushare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
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

// tenant returns a pod of a workload that may burst to its whole device: two busy ones slow each other down by more than a half.
// The name "" stands for a workload of which nothing is known.
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
		"both tolerate it":          {tenant("r", "heavy", 5), tenant("n", "heavy", 5), ""},
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

// A promise counts where nothing else is known: of the pods that run, whichever pod comes.
func TestPromiseAmongUnknownPods(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	d.runs(tolerating("1.15", tenant("r", "", 5)), "n1", 0)
	expect(t, "Filter", d.tries(tenant("n", "", 5), "n1"), broken)
}

// The snapshot names the right max-slowdown where that of the pod is too low: with it the pod fits, and with a thousandth less it does not. The
// snapshot names none where the promise of another pod would break.
func TestRoomAtAnotherSlowdown(t *testing.T) {
	refused := func(d *desk, p *v1.Pod) *snapshot.Refused {
		cs, statuses := d.preFilter(p), framework.NewDefaultNodeToStatus()
		for _, n := range d.nodes {
			if status := d.plugin.Filter(t.Context(), cs, p, n); !status.IsSuccess() {
				status.SetPlugin(Name)
				statuses.Set(n.Node().Name, status)
			}
		}
		d.plugin.pending.add(p)
		_, _ = d.plugin.PostFilter(t.Context(), cs, p, statuses)
		pending, _ := d.plugin.SnapshotPending(10, noGang)
		return pending[len(pending)-1].Refused
	}
	fits := func(d *desk, milli int64) bool {
		p := tolerating(strconv.FormatFloat(float64(milli)/1000, 'f', 3, 64), tenant("again", "heavy", 5))
		return slices.ContainsFunc(d.nodes, func(n fwk.NodeInfo) bool { return d.tries(p, n.Node().Name) == "" })
	}
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1), gpuNode("n3", 1))
	d.declare(declared("heavy", 100, 60))
	d.declare(declared("middle", 60, 40))
	d.runs(tenant("a", "heavy", 5), "n1", 0)
	d.runs(tenant("b", "middle", 5), "n2", 0)
	d.runs(tolerating("1.001", tenant("c", "middle", 5)), "n3", 0)
	r := refused(d, tolerating("1.01", tenant("asks", "heavy", 5)))
	if at := r.RoomAtSlowdownMilli; at <= 1010 || !fits(d, at) || fits(d, at-1) {
		t.Errorf("it would fit at %d: %+v", at, r)
	}
	d = newDesk(t, gpuNode("n1", 1))
	d.declare(declared("heavy", 100, 60))
	d.runs(tolerating("1.001", tenant("c", "heavy", 5)), "n1", 0)
	if r := refused(d, tolerating("1.01", tenant("asks", "heavy", 5))); r.RoomAtSlowdownMilli != 0 {
		t.Errorf("beside a promise it would fit at %d", r.RoomAtSlowdownMilli)
	}
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

// A declaration counts for the next pod, and the promise of a pod that has left counts no more.
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
