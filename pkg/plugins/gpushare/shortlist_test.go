package gpushare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// manyNodes is a desk with nodes of two devices, on each a share of 0 to 9 slots.
func manyNodes(t *testing.T, nodes int) *desk {
	t.Helper()
	gpuNodes := make([]*v1alpha1.GPUNode, nodes)
	for i := range gpuNodes {
		gpuNodes[i] = gpuNode(fmt.Sprintf("node-%03d", i), 2)
	}
	d := newDesk(t, gpuNodes...)
	random := rand.New(rand.NewPCG(1, 2))
	for _, g := range gpuNodes {
		for i, device := range g.Status.Devices {
			if k := random.IntN(10); k > 0 {
				p := pod(fmt.Sprintf("%s-%d", g.Name, i), k)
				d.add(bound(t, p, share(p, g.Name, device.ID, vgpu.Slots(k))), g.Name)
			}
		}
	}
	return d
}

// ranked returns the nodes that take the pod, by score and name, computed one by one.
func ranked(d *desk, p *v1.Pod) []string {
	cs := d.preFilter(p)
	r := requestOf(cs)
	var scores fwk.NodeScoreList
	for _, n := range d.nodes {
		if o := d.plugin.state.occupancyOf(n); placement.Fit(o.ledger, r) == nil {
			scores = append(scores, fwk.NodeScore{Name: n.Node().Name, Score: placement.Score(o.ledger, r, d.plugin.state.ruling().Policy)})
		}
	}
	slices.SortFunc(scores, better)
	names := make([]string, len(scores))
	for i := range scores {
		names[i] = scores[i].Name
	}
	return names
}

func shortlistOf(d *desk, cs fwk.CycleState, p *v1.Pod) sets.Set[string] {
	d.t.Helper()
	result, status := d.plugin.PreFilter(d.t.Context(), cs, p, d.nodes)
	if !status.IsSuccess() {
		d.t.Fatalf("PreFilter(%s) = %v", p.Name, status)
	}
	return result.NodeNames
}

func TestShortlistHoldsTheBestNodesOfAll(t *testing.T) {
	d := manyNodes(t, 400)
	for k := 1; k <= 9; k++ {
		p := pod(fmt.Sprintf("new-%d", k), k)
		want := ranked(d, p)
		want = want[:min(len(want), shortlistSize)]
		got := shortlistOf(d, framework.NewCycleState(), p)
		if !got.Equal(sets.New(want...)) {
			t.Errorf("%d slots: the shortlist has %d nodes, lacks %v and has %v in their place", k, got.Len(),
				sets.List(sets.New(want...).Difference(got)), sets.List(got.Difference(sets.New(want...))))
		}
	}
}

// Score takes the scores of the shortlist over, and computes those of nodes that changed since.
func TestScoreOfTheShortlist(t *testing.T) {
	d := manyNodes(t, 300)
	d.follow("fgd")
	d.usual(weighing(slots(4), 1))
	p := pod("new", 4)
	cs := framework.NewCycleState()
	list := sets.List(shortlistOf(d, cs, p))
	changed := list[7]
	for i, device := range d.plugin.state.nodes[changed].empty.Devices() {
		holder := pod(fmt.Sprintf("holder-%d", i), 10)
		must.OK(t, d.plugin.Hold(vgpu.Hold{Assignment: share(holder, changed, string(device.ID), 10), Priority: 10}))
	}
	for _, name := range list {
		node := d.byName[name]
		got, _ := d.plugin.Score(t.Context(), cs, p, node)
		want := placement.Score(d.plugin.state.occupancyOf(node).ledger, requestOf(cs), d.plugin.state.ruling().Policy)
		if got != want || (got < 0) != (name == changed) {
			t.Errorf("the score of %s is %d, want %d", name, got, want)
		}
	}
}

// Scores are remembered between cycles: the shortlist must follow reservations, their end, holds and devices all the same.
func TestShortlistFollowsChanges(t *testing.T) {
	d := manyNodes(t, 300)
	check := func(when string, p *v1.Pod) []string {
		t.Helper()
		want := ranked(d, p)
		want = want[:min(len(want), shortlistSize)]
		if got := shortlistOf(d, framework.NewCycleState(), p); !got.Equal(sets.New(want...)) {
			t.Errorf("%s: the shortlist differs from the best nodes by %v", when, sets.List(got.SymmetricDifference(sets.New(want...))))
		}
		return want
	}
	asker := func() *v1.Pod { return pod("asker", 4) }
	for i := range 40 {
		p := pod(fmt.Sprintf("step-%d", i), 4)
		node := check("a cycle", p)[i%3]
		d.reserve(d.preFilter(p), p, node)
		check("after a reservation", asker())
		if i%2 == 0 {
			d.unreserve(nil, p, node)
			check("after its end", asker())
		} else {
			d.assume(p, node)
		}
	}
	slices.Reverse(d.nodes) // as when some nodes go and as many come
	first := check("with the nodes in another order, before a hold", asker())[0]
	devices := d.plugin.state.nodes[first].empty.Devices()
	holder := pod("holder", 4)
	for _, device := range devices {
		holder = with(holder.DeepCopy(), func(p *v1.Pod) { p.UID += "+" })
		must.OK(t, d.plugin.Hold(vgpu.Hold{Assignment: share(holder, first, string(device.ID), 4), Priority: 10}))
	}
	check("with a hold, a pod of no priority", asker())
	high := int32(20)
	check("with a hold, a pod above it", with(pod("high", 4), func(p *v1.Pod) { p.Spec.Priority = &high }))
	check("with a hold, a pod of no priority again", asker())
	g := gpuNode(first, 2)
	g.Status.Devices[0].Health, g.Status.Devices[1].Health = v1alpha1.Unhealthy, v1alpha1.Unhealthy
	d.setGPUNode(g)
	check("with sick devices", asker())
}

// Scores are remembered: those of another mix must not be, whether it is given or learned, and those of requests that
// differ in CPU alone must not be mixed up.
func TestShortlistFollowsTheMix(t *testing.T) {
	d := manyNodes(t, 300)
	random := rand.New(rand.NewPCG(3, 4))
	for _, n := range d.nodes {
		name := n.Node().Name
		d.on(name, "beside-"+name, 0, strconv.Itoa(random.IntN(49)), "0")
	}
	d.follow("fgd")
	changes := 0
	var last []string
	check := func(when string) {
		t.Helper()
		for _, cpu := range []string{"1", "16"} {
			p := asking(pod("asker", 3), cpu)
			want := ranked(d, p)
			want = want[:min(len(want), shortlistSize)]
			if got := shortlistOf(d, framework.NewCycleState(), p); !got.Equal(sets.New(want...)) {
				t.Errorf("%s, %s cores: the shortlist differs from the best nodes by %v", when, cpu, sets.List(got.SymmetricDifference(sets.New(want...))))
			}
			if !slices.Equal(want, last) {
				changes++
			}
			last = want
		}
	}
	check("nothing is usual")
	for k := 1; k <= 10; k++ {
		d.usual(fragmentation.Kind{MilliCPU: int64(k) * 3000, Slots: vgpu.Slots(k), Weight: 1}, weighing(slots(11-k), 1))
		check(fmt.Sprintf("%d slots are usual", k))
	}
	d.plugin.arrivals = daily(newTicking())
	d.plugin.usual = d.plugin.arrivals.usual
	for k := 1; k <= 10; k++ {
		for range 5 * k {
			d.tell(event{nil, asking(pod("arrived", 11-k), strconv.Itoa(k))})
		}
		check(fmt.Sprintf("pods of %d slots come", 11-k))
	}
	if changes < 20 {
		t.Errorf("the best nodes changed %d times: the mixes make too little difference to see", changes)
	}
}

// Small clusters, and pods that fit nowhere, are left to Filter: preemption has to see every node.
func TestNoShortlistWhereItWouldHide(t *testing.T) {
	small, large := manyNodes(t, shortlistSize), manyNodes(t, shortlistSize+1)
	if got := shortlistOf(small, framework.NewCycleState(), pod("new", 1)); got != nil {
		t.Errorf("a cluster of %d nodes gives a shortlist of %d", shortlistSize, got.Len())
	}
	if got := shortlistOf(large, framework.NewCycleState(), pod("new", 1)); got.Len() == 0 {
		t.Errorf("a cluster of %d nodes gives no shortlist", shortlistSize+1)
	}
	for _, n := range large.nodes {
		name := n.Node().Name
		p := pod("filler-"+name, 20)
		if cs := large.preFilter(p); large.filter(cs, p, n) == "" {
			large.reserve(cs, p, name)
			large.assume(p, name)
		}
	}
	if got := shortlistOf(large, framework.NewCycleState(), pod("new", 20)); got != nil {
		t.Errorf("a pod that fits nowhere gets a shortlist of %d", got.Len())
	}
	group := framework.NewCycleState()
	group.SetPodGroupSchedulingCycle(framework.NewCycleState())
	if got := shortlistOf(large, group, pod("member", 1)); got != nil {
		t.Errorf("a member of a pod group gets a shortlist of %d", got.Len())
	}
}

func TestShortlistLeavesOutHopelessNodes(t *testing.T) {
	d := manyNodes(t, 300)
	p := with(pod("new", 1), func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("60")}
	})
	first := sets.List(shortlistOf(d, framework.NewCycleState(), p))
	for i, name := range first[:4] {
		switch i {
		case 0:
			d.byName[name].Node().Spec.Unschedulable = true
		default:
			d.add(with(pod("hog-"+name, 0), func(hog *v1.Pod) {
				hog.Spec.NodeName = name
				hog.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("5")}}
			}), name)
		}
	}
	second := shortlistOf(d, framework.NewCycleState(), p)
	if second.HasAny(first[:4]...) || second.Len() != shortlistSize {
		t.Errorf("a shortlist of %d nodes has some of %v, which are cordoned or short of CPU", second.Len(), first[:4])
	}
	pinned := with(pod("pinned", 1), func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"name": first[9]} })
	if got := shortlistOf(d, framework.NewCycleState(), pinned); !got.Equal(sets.New(first[9])) {
		t.Errorf("a pod that selects %s gets the shortlist %v", first[9], sets.List(got))
	}
}

func TestRefusedShortlistIsTriedAgainWithoutOne(t *testing.T) {
	d := manyNodes(t, 300)
	activator := &activations{deskHandle: deskHandle{desk: d}}
	d.plugin.handle = activator
	p, cs := pod("new", 1), framework.NewCycleState()
	shortlistOf(d, cs, p)
	_, status := d.plugin.PostFilter(t.Context(), cs, p, framework.NewDefaultNodeToStatus())
	// This code ends the chain: DefaultPreemption, which comes next, must not act on nodes that were not looked at.
	expect(t, "code", status.Code().String(), fwk.UnschedulableAndUnresolvable.String())
	expect(t, "activated", fmt.Sprint(activator.names), "[default/new]")
	if got := shortlistOf(d, framework.NewCycleState(), p); got != nil {
		t.Errorf("the second attempt has a shortlist of %d", got.Len())
	}
	_, status = d.plugin.PostFilter(t.Context(), framework.NewCycleState(), p, framework.NewDefaultNodeToStatus())
	expect(t, "code of an attempt without a shortlist", status.Code().String(), fwk.Unschedulable.String())
}

// activations is a handle that notes which pods are activated.
type activations struct {
	deskHandle
	names []string
}

func (a *activations) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for name := range pods {
		a.names = append(a.names, name)
	}
}

// All nodes of the shortlist are tainted, which a look does not see: the pod still gets a node, soon, and no pod is preempted for
// it.
func TestPodIsPlacedAfterARefusedShortlist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gpuNodes []*v1alpha1.GPUNode
		for i := range shortlistSize + 3 {
			gpuNodes = append(gpuNodes, gpuNode(fmt.Sprintf("node-%03d", i), 1))
		}
		c := newCluster(t, gpuNodes...)
		// The scheduler that is asked starts with the taints: one at work hears of a taint later than of the pod, at times.
		c.stop()
		for i := range shortlistSize {
			c.taint(fmt.Sprintf("node-%03d", i))
		}
		c.start()
		c.createPod(pod("new", 3))
		expect(t, "place", c.awaitBound("new"), "node-100/GPU-node-100-0")
	})
}

// The informer shows binds at any time. A node of which it does so in the middle of a cycle, once the occupancies are up to
// date, keeps its place: often it is the best one, where the pod before went.
func TestShortlistKeepsNodesThatChangeMeanwhile(t *testing.T) {
	d := manyNodes(t, 150)
	p := pod("new", 3)
	want := ranked(d, p)[:shortlistSize]
	r := requestOf(d.preFilter(p))
	for _, n := range d.plugin.state.nodes {
		n.epoch++
	}
	var got []string
	for _, n := range d.plugin.state.best(d.nodes, r, newDemand(p, r.Host)) {
		got = append(got, n.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("shortlist %v, want %v", got, want)
	}
}
