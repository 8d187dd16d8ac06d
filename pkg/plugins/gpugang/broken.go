package gpugang

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/admission"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// A running gang that lacks members keeps the GPUs of the others idle until they are back. So it goes before other pods of its
// priority, whatever the order of the scheduler's queue: a pod that is about to get room waits until these gangs have been planned.
// An older pod could take the room of a lost member for good.

// Bounds of what these plans cost the placements of others. Only the first mostBroken gangs that lack members go first: more take
// longer, and a gang that waits behind four others hardly gets the room. A plan in vain is left out at the next placement, then at
// three, and so on up to mostSkipped, until the gang itself has been tried, or a node that has more slots free than before takes a
// member. A larger number costs less where many pods are placed beside such a gang, and an older pod takes the room of a GPU that
// becomes healthy or is uncordoned, which no node's slots show. If the plan for such a node is in vain too, as for a gang that needs
// two rooms, the next such nodes are passed over, one, three and up to mostPassed.
const (
	mostBroken  = 4
	mostSkipped = 63
	mostPassed  = 7
)

// patience counts at how many placements a gang is not planned first after plans in vain: of all in a row, and of those to come. passed
// and pass are the same for nodes with more free slots; hopes says that the next plan is for such a node.
type patience struct {
	skipped, left int
	passed, pass  int
	hopes         bool
}

// mayGoFirst reports whether a gang that lacks members is planned at this placement.
func (p *Plugin) mayGoFirst(ref podgroup.Ref) bool {
	at := p.inVain[ref]
	if at == nil || at.left == 0 {
		return true
	}
	at.left--
	return false
}

// wentInVain notes that a gang was planned before others in vain.
func (p *Plugin) wentInVain(ref podgroup.Ref) {
	at := p.inVain[ref]
	if at == nil {
		at = &patience{}
		p.inVain[ref] = at
	}
	at.skipped = min(2*at.skipped+1, mostSkipped)
	at.left = at.skipped
	if at.hopes {
		at.passed, at.hopes = min(2*at.passed+1, mostPassed), false
		at.pass = at.passed
	}
}

// triesItself notes that the scheduler tries a gang itself, since something may have changed.
func (p *Plugin) triesItself(ref podgroup.Ref) {
	if at := p.inVain[ref]; at != nil {
		*at = patience{skipped: at.skipped / 2, passed: at.passed / 2}
	}
}

// reserveAfterBroken refuses a pod outside of gangs once, where a running gang takes room before it.
func (p *Plugin) reserveAfterBroken(ctx context.Context, pod *v1.Pod) *fwk.Status {
	if len(p.broken(podgroup.Ref{})) == 0 {
		clear(p.inVain)
		p.freeSlots = nil
		return nil
	}
	if !kube.WantsVGPU(pod) {
		return nil
	}
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return verdict.Failed(err)
	}
	placed := p.planBroken(ctx, pod, nodes, podgroup.Ref{})
	if placed == "" {
		return nil
	}
	p.machine.Activate(pod)
	p.machine.Flush(ctx)
	return verdict.New(fwk.Unschedulable, "gang "+placed+" runs and lacks members, and gets its room first: the pod is tried again at once")
}

// broken returns the running gangs that wait for room before a gang, which is the zero Ref for a pod outside of gangs.
func (p *Plugin) broken(before podgroup.Ref) (refs []podgroup.Ref) {
	p.machine.Lock(func(l machine.Locked) { refs = l.State.Broken(before) })
	return refs
}

// planBroken plans the running gangs that lack members, before a pod of the gang own gets room, and returns one that got a place,
// "" for none. Gangs of a lower priority have their own turn, and so have those that the scheduler's queue knows.
func (p *Plugin) planBroken(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, own podgroup.Ref) (placed string) {
	planned, refs := 0, p.broken(own)
	p.hope(ctx, nodes)
	for _, ref := range refs {
		member := p.nextOf(ref)
		if member == nil || p.gangs.Queues(ref.Source) || member.Spec.SchedulerName != pod.Spec.SchedulerName || priorityOf(member) < priorityOf(pod) {
			continue
		}
		if !p.mayGoFirst(ref) {
			continue
		}
		if planned++; planned > mostBroken {
			break
		}
		if p.planFor(ctx, ref, member, nodes) {
			placed = ref.String()
			delete(p.inVain, ref)
		} else {
			p.wentInVain(ref)
		}
	}
	return placed
}

// hope has gangs planned at the next placement that may go behind theirs, if a node with more free slots than at the last placement takes a
// member: this placement may be one before which they do not go. It looks at the first gangs alone that are passed over, as many as may go first.
func (p *Plugin) hope(ctx context.Context, nodes []fwk.NodeInfo) {
	more := p.moreFree(nodes)
	if len(more) == 0 {
		return
	}
	looked := 0
	for _, ref := range p.broken(podgroup.Ref{}) {
		at := p.inVain[ref]
		if at == nil || at.left == 0 {
			continue
		}
		if looked++; looked > mostBroken {
			break
		}
		if member := p.nextOf(ref); member == nil || !p.takenBy(ctx, member, more) {
			continue
		}
		if at.pass > 0 {
			at.pass--
			continue
		}
		at.left, at.hopes = 0, true
	}
}

// moreFree returns the nodes that have more free slots than at the last placement beside a gang that lacks members. A node that was gone
// then had none.
func (p *Plugin) moreFree(nodes []fwk.NodeInfo) (more []fwk.NodeInfo) {
	before := p.freeSlots
	p.freeSlots = make(map[string]int64, len(nodes))
	for _, n := range nodes {
		free, name := n.GetAllocatable().GetScalarResources()[v1alpha1.ResourceVGPU]-n.GetRequested().GetScalarResources()[v1alpha1.ResourceVGPU], n.Node().Name
		if p.freeSlots[name] = free; before != nil && free > before[name] {
			more = append(more, n)
		}
	}
	return more
}

// takenBy reports whether the devices of one of the nodes, which admits the pod, have room for it.
func (p *Plugin) takenBy(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) bool {
	demand := admission.Of(pod)
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n fwk.NodeInfo) bool { return !demand.MetBy(n.Node()) })
	shares := p.shares()
	request, err := shares.Request(pod)
	if err != nil || len(nodes) == 0 {
		return false
	}
	ledgers, err := shares.Ledgers(ctx, pod, nodes, func(string) bool { return false })
	policy := shares.Policy()
	return err == nil && slices.ContainsFunc(ledgers, func(n *vgpu.Node) bool { return n != nil && policy.Fits(n, &request) })
}

// planFor plans a gang by one of its members, and reports whether that has a place.
func (p *Plugin) planFor(ctx context.Context, ref podgroup.Ref, member *v1.Pod, nodes []fwk.NodeInfo) bool {
	at, why := p.place(ctx, &cycle{cs: framework.NewCycleState(), pod: member, nodes: nodes}, ref)
	if at == nil {
		klog.FromContext(ctx).V(4).Info("A running gang lacks members and has no room", "gang", ref.String(), "why", why)
		return false
	}
	p.machine.Activate(member)
	return true
}

// planYielding plans the gangs that give way to a gang without room, so that none is evicted whose members fit by now.
func (p *Plugin) planYielding(ctx context.Context, c *cycle, ref podgroup.Ref) {
	if p.yielding { // one of them has no room either
		return
	}
	p.yielding = true
	defer func() { p.yielding = false }()
	var refs []podgroup.Ref
	p.machine.Lock(func(l machine.Locked) { refs = l.State.Yielding(ref, p.now()) })
	for _, other := range refs[:min(len(refs), mostBroken)] {
		if member := p.nextOf(other); member != nil && !p.gangs.Queues(other.Source) && member.Spec.SchedulerName == c.pod.Spec.SchedulerName {
			p.planFor(ctx, other, member, c.nodes)
		}
	}
}

// nextOf returns the member of a gang that the scheduler tries next, nil where none waits or something is wrong with the gang.
func (p *Plugin) nextOf(ref podgroup.Ref) *v1.Pod {
	pg, err := p.gangs.Gang(ref)
	if pg == nil || err != nil {
		return nil
	}
	at := slices.IndexFunc(pg.Members, func(pod *v1.Pod) bool {
		m := machine.MemberOf(pod)
		return m.Waits()
	})
	if at < 0 {
		return nil
	}
	return pg.Members[at]
}
