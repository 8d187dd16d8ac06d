package gpugang

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// A running gang that lacks members keeps the GPUs of the others idle until they are back. So it goes before other pods of its
// priority, whatever the order of the scheduler's queue: a pod that is about to get room waits until these gangs have been planned.
// An older pod could take the room of a lost member for good.

// Bounds of what these plans cost the placements of others. Only the first mostBroken gangs that lack members go first: more take
// longer, and a gang that waits behind four others hardly gets the room. A plan in vain is left out at the next placement, then at
// three, and so on up to mostSkipped, until the gang itself has been tried, or a node has more slots free than before and enough for a
// member. A larger number costs less where many pods are placed beside such a gang, and an older pod takes the room of a GPU that
// becomes healthy or is uncordoned, which no node's slots show.
const (
	mostBroken  = 4
	mostSkipped = 63
)

// patience counts at how many placements a gang is not planned first after plans in vain: of all in a row, and of those to come.
type patience struct{ skipped, left int }

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
}

// triesItself notes that the scheduler tries a gang itself, since something may have changed.
func (p *Plugin) triesItself(ref podgroup.Ref) {
	if at := p.inVain[ref]; at != nil {
		at.skipped, at.left = at.skipped/2, 0
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
	planned, free := 0, p.cameFree(nodes)
	for _, ref := range p.broken(own) {
		member := p.nextOf(ref)
		if member == nil || p.gangs.Queues(ref.Source) || member.Spec.SchedulerName != pod.Spec.SchedulerName || priorityOf(member) < priorityOf(pod) {
			continue
		}
		if slots := slotsOf(member); slots > 0 && free >= slots {
			p.triesItself(ref)
		}
		if !p.mayGoFirst(ref) {
			continue
		}
		if planned++; planned > mostBroken {
			break
		}
		if p.planFor(ctx, ref, member, nodes) {
			placed = ref.String()
		} else {
			p.wentInVain(ref)
		}
	}
	return placed
}

// cameFree returns the most free slots of a node that has more of them than at the placement before.
func (p *Plugin) cameFree(nodes []fwk.NodeInfo) (most int64) {
	before := p.freeSlots
	p.freeSlots = make(map[string]int64, len(nodes))
	for _, n := range nodes {
		free := n.GetAllocatable().GetScalarResources()[v1alpha1.ResourceVGPU] - n.GetRequested().GetScalarResources()[v1alpha1.ResourceVGPU]
		name := n.Node().Name
		if p.freeSlots[name] = free; free > before[name] {
			most = max(most, free)
		}
	}
	return most
}

// slotsOf returns how many slots a pod asks for, 0 if its request is not legal.
func slotsOf(pod *v1.Pod) (sum int64) {
	containers, err := kube.Containers(pod)
	if err != nil {
		return 0
	}
	for _, c := range containers {
		sum += int64(c.Slots)
	}
	return sum
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
