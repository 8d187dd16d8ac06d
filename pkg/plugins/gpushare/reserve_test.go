package gpushare

import (
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// expect compares two strings and says what they are.
func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A group cycle reserves each member while its siblings are assumed in the snapshot, reverts all, and reserves again
// for real: then the siblings are assumed in the scheduler's cache and not in the snapshot.
func TestReserveReplaysInAGroupCycle(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2))
	a, b := pod("a", 6), pod("b", 6)

	csA := d.preFilter(a)
	expect(t, "first member", d.reserve(csA, a, "n1"), "n1/GPU-n1-0")
	assumedA := d.assumeInSnapshot(a, "n1")
	csB := d.preFilter(b)
	expect(t, "second member beside the first", d.reserve(csB, b, "n1"), "n1/GPU-n1-1")
	assumedB := d.assumeInSnapshot(b, "n1")

	d.unreserve(csB, b, "n1")
	d.forgetInSnapshot(assumedB, "n1")
	d.unreserve(csA, a, "n1")
	d.forgetInSnapshot(assumedA, "n1")
	if kept := d.plugin.state.kept()["reserved"]; kept != 0 {
		t.Fatalf("%d reservations are left after the revert", kept)
	}

	// In the other order, and without the siblings in the NodeInfo: a second decision would take GPU-n1-0 for b.
	expect(t, "second member for real", d.reserve(csB, b, "n1"), "n1/GPU-n1-1")
	expect(t, "first member for real", d.reserve(csA, a, "n1"), "n1/GPU-n1-0")
}

// assumeInSnapshot adds a pod and restores the generation, as Snapshot.AssumePod of the scheduler does.
func (d *desk) assumeInSnapshot(p *v1.Pod, node string) *v1.Pod {
	before := d.byName[node].Generation
	assumed := d.assume(p, node)
	d.byName[node].Generation = before
	return assumed
}

func (d *desk) forgetInSnapshot(p *v1.Pod, node string) {
	before := d.byName[node].Generation
	d.remove(p, node)
	d.byName[node].Generation = before
}

func TestReserveSeesSiblingsThatTheSnapshotLacks(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2))
	a, b, c := pod("a", 6), pod("b", 6), pod("c", 6)
	csA, csB, csC := d.preFilter(a), d.preFilter(b), d.preFilter(c)
	expect(t, "a", d.reserve(csA, a, "n1"), "n1/GPU-n1-0")
	expect(t, "b", d.reserve(csB, b, "n1"), "n1/GPU-n1-1")
	expect(t, "c", d.reserve(csC, c, "n1"), "(largest free share is 4 of 10 slots on n1/g0; container main asks for 6)")
}

func TestReserveIsIdempotentAndUnreserveUndoesIt(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2))
	p := pod("a", 6)
	cs := d.preFilter(p)
	expect(t, "once", d.reserve(cs, p, "n1"), "n1/GPU-n1-0")
	expect(t, "twice", d.reserve(cs, p, "n1"), "n1/GPU-n1-0")
	d.unreserve(cs, p, "n1")
	d.unreserve(cs, p, "n1")
	d.unreserve(cs, p, "n2")
	q := pod("q", 10)
	expect(t, "after the undo", d.reserve(d.preFilter(q), q, "n1"), "n1/GPU-n1-0")
}

// An assumed pod carries no annotation. Its devices are known by the reservation, then by the informer's copy.
func TestAssumedPodKeepsItsDevicesUntilItsAnnotationIsSeen(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	p := pod("a", 6)
	d.reserve(d.preFilter(p), p, "n1")
	assumed := d.assume(p, "n1")
	a, _ := d.plugin.state.reservation(kube.UIDOf(p), "n1")

	late := pod("late", 5)
	const full = "largest free share is 4 of 10 slots"
	expect(t, "by the reservation", d.filter(d.preFilter(late), late, d.nodes[0]), full)

	// The informer's handler may settle the pod before the scheduler's cache has the update.
	must.OK(t, d.indexer.Add(bound(t, p, a)))
	d.plugin.state.noteBound(kube.UIDOf(p), "n1")
	expect(t, "by the informer", d.filter(d.preFilter(late), late, d.nodes[0]), full)

	d.remove(assumed, "n1")
	d.add(bound(t, p, a), "n1")
	expect(t, "by the annotation", d.filter(d.preFilter(late), late, d.nodes[0]), full)
	if kept := d.plugin.state.kept(); kept["reserved"] != 0 {
		t.Errorf("kept %v", kept)
	}
}

func TestHoldsCountByPriority(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	holder := with(pod("holder", 8), func(p *v1.Pod) { p.Spec.Priority = new(int32(50)) })
	must.OK(t, d.plugin.Hold(vgpu.Hold{Assignment: share(holder, "n1", "GPU-n1-0", 8), Priority: 50}))
	const full = "largest free share is 2 of 10 slots"
	for priority, want := range map[int32]string{0: full, 50: full, 51: ""} {
		p := with(pod("other", 3), func(p *v1.Pod) { p.Spec.Priority = &priority })
		expect(t, "a pod of another priority", d.filter(d.preFilter(p), p, d.nodes[0]), want)
	}
	expect(t, "its own pod", d.filter(d.preFilter(holder), holder, d.nodes[0]), "")
	if !d.plugin.Release(kube.UIDOf(holder)) || d.plugin.Release(kube.UIDOf(holder)) {
		t.Error("Release does not report whether there was a hold")
	}
	p := pod("other", 3)
	expect(t, "after the release", d.filter(d.preFilter(p), p, d.nodes[0]), "")
	if err := d.plugin.Hold(vgpu.Hold{Assignment: share(holder, "n1", "GPU-none", 8)}); err == nil {
		t.Error("a hold on an unknown device is accepted")
	}
}

// A bind whose outcome is unknown keeps its room from all other pods, and its pod gets the same devices again.
func TestUnresolvedBindKeepsItsRoom(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2))
	first := pod("first", 6)
	d.reserve(d.preFilter(first), first, "n1")
	assumed := d.assume(first, "n1")
	p := pod("a", 6)
	cs := d.preFilter(p)
	expect(t, "the first time", d.reserve(cs, p, "n1"), "n1/GPU-n1-1")
	a, _ := d.plugin.state.reservation(kube.UIDOf(p), "n1")
	d.plugin.state.suspend(a, time.Now())
	d.unreserve(cs, p, "n1")

	other := with(pod("other", 5), func(p *v1.Pod) { p.Spec.Priority = new(int32(2000000000)) })
	const full = "largest free share is 4 of 10 slots"
	expect(t, "a pod of the highest priority", d.filter(d.preFilter(other), other, d.nodes[0]), full)

	d.unreserve(nil, first, "n1")
	d.remove(assumed, "n1")
	expect(t, "the pod again, with another choice free", d.reserve(d.preFilter(p), p, "n1"), "n1/GPU-n1-1")
	d.unreserve(nil, p, "n1")

	d.plugin.state.gone(kube.UIDOf(p))
	two := pod("two", 20)
	expect(t, "after it is gone", d.reserve(d.preFilter(two), two, "n1"), "n1/GPU-n1-0+GPU-n1-1")
}

// A bind that lands after the scheduler gave it up: the informer may show the pod to the plugin before the scheduler's
// cache has it again. Its room must not be free in between.
func TestLateBindKeepsItsRoomUntilTheSnapshotShowsIt(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1), gpuNode("n2", 1))
	p := pod("a", 6)
	cs := d.preFilter(p)
	d.reserve(cs, p, "n1")
	a, _ := d.plugin.state.reservation(kube.UIDOf(p), "n1")
	d.plugin.state.suspend(a, time.Now())
	d.unreserve(cs, p, "n1")
	elsewhere := share(p, "n2", "GPU-n2-0", 6)
	d.plugin.state.suspend(elsewhere, time.Now())

	other := pod("other", 5)
	const full = "largest free share is 4 of 10 slots"
	d.plugin.state.noteBound(kube.UIDOf(p), "n1")
	expect(t, "with the pod in the informer only", d.filter(d.preFilter(other), other, d.nodes[0]), full)
	expect(t, "where the pod is not", d.filter(d.preFilter(other), other, d.nodes[1]), "")

	landed := d.add(bound(t, p, a), "n1")
	expect(t, "with the pod in the snapshot", d.filter(d.preFilter(other), other, d.nodes[0]), full)
	if kept := d.plugin.state.kept(); kept["unresolved"] != 0 {
		t.Errorf("kept %v", kept)
	}
	d.remove(landed, "n1")
	expect(t, "with the pod gone", d.filter(d.preFilter(other), other, d.nodes[0]), "")
}

// A retry that is assumed is in the snapshot too, and says nothing about the bind before it.
func TestAssumedRetryDoesNotResolveABind(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	p := pod("a", 6)
	cs := d.preFilter(p)
	d.reserve(cs, p, "n1")
	a, _ := d.plugin.state.reservation(kube.UIDOf(p), "n1")
	d.plugin.state.suspend(a, time.Now())
	assumed := d.assume(p, "n1")
	d.preFilter(pod("b", 1))
	d.remove(assumed, "n1")
	d.unreserve(cs, p, "n1")
	other := pod("other", 5)
	expect(t, "after the retry failed", d.filter(d.preFilter(other), other, d.nodes[0]), "largest free share is 4 of 10 slots")
}

// The framework adds nominated pods to the NodeInfo: lower priorities see their room as taken.
func TestNominatedPodsTakeDevices(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	nominated := with(pod("nominated", 8), func(p *v1.Pod) { p.Status.NominatedNodeName = "n1" })
	info, err := framework.NewPodInfo(nominated)
	must.OK(t, err)
	p := pod("p", 3)
	cs := d.preFilter(p)
	shown := d.nodes[0].Snapshot()
	shown.AddPodInfo(info)
	expect(t, "beside the nominated pod", d.filter(cs, p, shown), "largest free share is 2 of 10 slots")
	expect(t, "without it", d.filter(cs, p, d.nodes[0]), "")

	// With a hold, the nominated pod is where the hold says, and is not counted again.
	must.OK(t, d.plugin.Hold(vgpu.Hold{Assignment: share(nominated, "n1", "GPU-n1-0", 8), Priority: 0}))
	expect(t, "with a hold", d.filter(cs, pod("p", 3), shown), "largest free share is 2 of 10 slots")

	// While victims are still leaving it cannot be given a device: its slots count for the node.
	d.plugin.Release(kube.UIDOf(nominated))
	victim := pod("victim", 5)
	d.add(bound(t, victim, share(victim, "n1", "GPU-n1-0", 5)), "n1")
	shown = d.nodes[0].Snapshot()
	shown.AddPodInfo(info)
	expect(t, "while a victim leaves", d.filter(cs, p, shown), "pods without an assignment hold the node's slots")
}

// Filter looks at a node with a nominated pod while somebody waits to write: it must not take the lock for reading a second time.
func TestNominatedPodsBesideAWriter(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	info, err := framework.NewPodInfo(with(pod("nominated", 8), func(p *v1.Pod) { p.Status.NominatedNodeName = "n1" }))
	must.OK(t, err)
	shown := d.nodes[0].Snapshot()
	shown.AddPodInfo(info)
	s := d.plugin.state
	s.mu.RLock()
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
	}()
	for s.mu.TryRLock() { // until the writer waits
		s.mu.RUnlock()
		runtime.Gosched()
	}
	done := make(chan *occupancy, 1)
	go func() { done <- s.build(s.nodes["n1"], shown) }()
	select {
	case o := <-done:
		got := vgpu.Slots(0)
		for i := range o.ledger.Devices() {
			got += o.ledger.FreeFor(i, &vgpu.Request{}).Slots
		}
		if got != 2 {
			t.Errorf("%d slots are free beside the nominated pod, want 2", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("the look at the node waits for the writer, which waits for the look")
	}
	s.mu.RUnlock()
}

func TestFilterSeesTheDryRunOfPreemption(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	victim := pod("victim", 8)
	victim = d.add(bound(t, victim, share(victim, "n1", "GPU-n1-0", 8)), "n1")
	p := pod("p", 5)
	cs := d.preFilter(p)
	dry := d.nodes[0].Snapshot()
	must.OK(t, dry.RemovePod(d.logger(), victim))
	expect(t, "without the victim", d.filter(cs, p, dry), "")
	expect(t, "with it", d.filter(cs, p, d.nodes[0]), "largest free share is 2 of 10 slots")
}

// The number of pods tells nothing when one came and one left; the generation tells nothing in a group cycle.
func TestOccupancyFollowsTheNodeInfo(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 1))
	add := func(name string, slots int) *v1.Pod {
		p := pod(name, slots)
		return d.add(bound(t, p, share(p, "n1", "GPU-n1-0", vgpu.Slots(slots))), "n1")
	}
	p := pod("p", 5)
	first := add("first", 6)
	expect(t, "one pod", d.filter(d.preFilter(p), p, d.nodes[0]), "largest free share is 4 of 10 slots")
	d.remove(first, "n1")
	add("second", 7)
	expect(t, "another pod", d.filter(d.preFilter(p), p, d.nodes[0]), "largest free share is 3 of 10 slots")
	before := d.byName["n1"].Generation
	add("third", 2)
	d.byName["n1"].Generation = before
	expect(t, "one more in a group cycle", d.filter(d.preFilter(p), p, d.nodes[0]), "largest free share is 1 of 10 slots")
}

// Two assignments name more of a device than it has: another scheduler made one of them. The plugin cannot tell which runs, so the
// device takes no new pod.
func TestDeviceThatIsBookedTwiceTakesNoMore(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2))
	for _, name := range []string{"x", "y"} {
		p := pod(name, 6)
		d.add(bound(t, p, share(p, "n1", "GPU-n1-0", 6)), "n1")
	}
	p := pod("p", 1)
	expect(t, "a small pod", d.reserve(d.preFilter(p), p, "n1"), "n1/GPU-n1-1")
	if got := d.plugin.Published(); len(got) != 1 || len(got[0].Strays) != 1 {
		t.Errorf("Published = %+v, want the pod that could not be booked", got)
	}
}

// Devices shrink under the pods that use them: the pods run on, and the device takes no new ones.
func TestDeviceThatShrankTakesNoMore(t *testing.T) {
	g := gpuNode("n1", 2)
	d := newDesk(t, g)
	p := pod("a", 6)
	d.add(bound(t, p, share(p, "n1", "GPU-n1-0", 6)), "n1")
	g.Status.Devices[0].Slots = 4
	d.setGPUNode(g)
	q := pod("q", 1)
	expect(t, "a small pod", d.reserve(d.preFilter(q), q, "n1"), "n1/GPU-n1-1")
}

func TestInventoryChangesBumpTheEpoch(t *testing.T) {
	g := gpuNode("n1", 1)
	d := newDesk(t, g)
	p := pod("p", 3)
	cs := d.preFilter(p)
	expect(t, "healthy", d.filter(cs, p, d.nodes[0]), "")
	g.Status.Devices[0].Health = v1alpha1.Unhealthy
	d.setGPUNode(g)
	expect(t, "sick, in the same cycle", d.filter(cs, p, d.nodes[0]), "no healthy GPU could take the share, others are sick or cordoned")
}
