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
)

// A running gang that lacks members keeps the GPUs of the others idle until they are back. So it goes before other pods of its
// priority, whatever the order of the scheduler's queue: whoever is about to get room waits until these gangs have been planned. An
// older pod could take the room of a lost member for good.

// reserveAfterBroken refuses a pod outside of gangs once, where a running gang takes room before it.
func (p *Plugin) reserveAfterBroken(ctx context.Context, pod *v1.Pod) *fwk.Status {
	if !kube.WantsVGPU(pod) || len(p.broken(podgroup.Ref{})) == 0 {
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
	for _, ref := range p.broken(own) {
		member := p.nextOf(ref)
		if member == nil || p.gangs.Queues(ref.Source) || member.Spec.SchedulerName != pod.Spec.SchedulerName || priorityOf(member) < priorityOf(pod) {
			continue
		}
		at, why := p.place(ctx, &cycle{cs: framework.NewCycleState(), pod: member, nodes: nodes}, ref)
		if at == nil {
			klog.FromContext(ctx).V(4).Info("A running gang lacks members and has no room", "gang", ref.String(), "why", why)
			continue
		}
		placed = ref.String()
		p.machine.Activate(member)
	}
	return placed
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
