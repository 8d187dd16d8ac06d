package gpugang

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Keys of the plugin's data in the CycleState of a pod, and in that of a group cycle, which has the latter two.
const (
	placeKey      fwk.StateKey = Name + "/place"
	groupCycleKey fwk.StateKey = Name + "/trial"
)

// given is the place that a cycle gave a member.
type given struct{ reservation.Place }

// Clone returns the same place: a place never changes.
func (g *given) Clone() fwk.StateData { return g }

// groupCycle is the state of a group cycle so far: the nodes of its members, and the nodes at which the plugins
// accepted them.
type groupCycle struct{ given, reserved map[vgpu.UID]string }

// Clone returns the same object: the cycle has only one.
func (g *groupCycle) Clone() fwk.StateData { return g }

// groupCycleOf returns the state of a group cycle, nil before the first member.
func groupCycleOf(state fwk.PodGroupCycleState) *groupCycle {
	data, err := state.Read(groupCycleKey)
	if err != nil {
		return nil
	}
	g, _ := data.(*groupCycle)
	return g
}

// refused returns the nodes that refused a member of the plan, with the number of members that they took.
func (g *groupCycle) refused() map[string]int {
	nodes := map[string]int{}
	if g == nil {
		return nodes
	}
	for uid, node := range g.given {
		if g.reserved[uid] == "" {
			nodes[node] = 0
		}
	}
	for _, node := range g.reserved {
		if _, refused := nodes[node]; refused {
			nodes[node]++
		}
	}
	return nodes
}

// PreFilter gives a member of a gang its place. The first member makes the plan for all of them, and the holds; without
// a plan it gets the nearest miss as its refusal. It skips pods outside of gangs.
//
// A member that the target of an elastic gang holds back gets no place. PreEnqueue says so for gangs that the scheduler's
// queue does not know: the others enter the queue as a whole.
//
// A refusal is final for the pod as far as the preemption of single pods goes, which must not evict for one member.
func (p *Plugin) PreFilter(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return nil, verdict.New(fwk.Skip)
	}
	p.gangs.See(pod)
	p.active.Store(true)
	if why := p.heldBack(ref, pod); why != "" {
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, why)
	}
	p.warnOfName(ref, pod)
	defer p.machine.Flush(ctx)
	c := &cycle{cs: cs, pod: pod, nodes: nodes}
	p.triesItself(ref)
	at, why := p.place(ctx, c, ref)
	if why != "" {
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, why)
	}
	c.noteGiven(at)
	cs.Write(placeKey, &given{*at})
	if !at.Pinned {
		return nil, nil
	}
	p.denominate(at.Node)
	return &fwk.PreFilterResult{NodeNames: sets.New(at.Node)}, nil
}

// PreFilterExtensions returns nil: a place does not depend on other pods of the node.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// cycle is one scheduling cycle of a member.
type cycle struct {
	cs    fwk.CycleState
	pod   *v1.Pod
	nodes []fwk.NodeInfo
}

// grouped reports whether the scheduler tries all members of the gang in this cycle.
func (c *cycle) grouped() bool { return c.cs.IsPodGroupSchedulingCycle() }

// attempted reports whether the group cycle has tried a plan before, and notes that it has now.
func (c *cycle) attempted() bool {
	if !c.grouped() {
		return false
	}
	state := c.cs.GetPodGroupSchedulingCycle()
	if groupCycleOf(state) != nil {
		return true
	}
	state.Write(groupCycleKey, &groupCycle{given: map[vgpu.UID]string{}, reserved: map[vgpu.UID]string{}})
	return false
}

// noteGiven notes the node of a member in a group cycle.
func (c *cycle) noteGiven(at *reservation.Place) {
	if c.grouped() && at.Pinned {
		groupCycleOf(c.cs.GetPodGroupSchedulingCycle()).given[kube.UIDOf(c.pod)] = at.Node
	}
}

// leaveRoomRequest leaves the request of a gang for preemption, where the refusal is for want of room.
func (c *cycle) leaveRoomRequest(in *planInput, refusal *gang.Refusal) {
	if refusal.Reason != gang.NoRoom || in.lacking() == 0 {
		return
	}
	r := &podgroup.RoomRequest{
		Gang: in.gang, Cluster: in.cluster, Group: in.group, Config: in.config, Pods: in.pods, Unbound: max(0, in.gang.MinCount-in.bound),
		Grouped: c.grouped(),
	}
	r.Config.SkipExplanation = false
	if c.grouped() {
		r.Leave(c.cs.GetPodGroupSchedulingCycle())
	} else {
		r.Leave(c.cs)
	}
}

// place returns the place of the cycle's pod, or why it has none.
func (p *Plugin) place(ctx context.Context, c *cycle, ref podgroup.Ref) (*reservation.Place, string) {
	again := c.attempted()
	a := p.machine.Step(func(l machine.Locked) reservation.Event {
		return reservation.Tried{
			Gang: l.Facts(ref), UID: kube.UIDOf(c.pod), Pod: kube.PathOf(c.pod), Priority: priorityOf(c.pod), Never: neverPreempts(c.pod), Grouped: c.grouped(), Again: again,
			Stands: p.stands(l.State, ref, c.pod), Still: p.stillThere(l.State.Leaving(ref)),
		}
	})
	if a.Plan != nil {
		return p.plan(ctx, c, ref, a.Plan.Version)
	}
	return a.Place, words(a.Refuse)
}

// stands reports whether the place of a member is valid: the hold and the node are there.
func (p *Plugin) stands(s *reservation.State, ref podgroup.Ref, pod *v1.Pod) bool {
	at, ok := s.Place(ref, kube.UIDOf(pod))
	if !ok || !at.Pinned {
		return ok
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(at.Node)
	return err == nil && (!at.Held() || p.shares().Stands(kube.UIDOf(pod), info))
}

// stillThere returns those of some pods that the snapshot of this cycle has on their nodes.
func (p *Plugin) stillThere(leaving map[vgpu.UID]string) (still []vgpu.UID) {
	nodes := p.handle.SnapshotSharedLister().NodeInfos()
	for uid, name := range leaving {
		info, err := nodes.Get(name)
		if err == nil && slices.ContainsFunc(info.GetPods(), func(pod fwk.PodInfo) bool { return kube.UIDOf(pod.GetPod()) == uid }) {
			still = append(still, uid)
		}
	}
	return still
}

// placeOf returns what PreFilter found, nil for pods of no gang.
func placeOf(cs fwk.CycleState) *reservation.Place {
	data, err := cs.Read(placeKey)
	if err != nil {
		return nil
	}
	at, ok := data.(*given)
	if !ok {
		return nil
	}
	return &at.Place
}

func neverPreempts(pod *v1.Pod) bool {
	return pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == v1.PreemptNever
}
