package gpugang

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// PreEnqueue keeps members out of the queue until the least number exists. It also keeps out the members of a refused
// gang while the scheduler tries its leader on their behalf, and those that the target of an elastic gang holds back. Gangs that the scheduler's queue knows are gated by the
// scheduler's own plugin, as a whole.
//
// A mistake in the gang keeps no pod out: PreFilter says it in the pod's event.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return nil
	}
	p.gangs.See(pod)
	if p.gangs.Queues(ref.Source) {
		return nil
	}
	if why := p.heldBack(ref, pod); why != "" {
		return verdict.New(fwk.UnschedulableAndUnresolvable, why)
	}
	a := p.machine.Step(func(l machine.Locked) reservation.Event {
		return reservation.Enqueued{Gang: l.Facts(ref), UID: kube.UIDOf(pod)}
	})
	if a.Refuse != nil {
		return verdict.New(fwk.UnschedulableAndUnresolvable, words(a.Refuse))
	}
	return nil
}

// EventsToRegister names the events after which the scheduler tries a refused gang again: a pod leaves its node, a node
// comes or changes. A change of a gang itself activates its leader, once podgroup has read it.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPodLeft},
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint | fwk.UpdateNodeAllocatable}},
	}, nil
}

// afterPodLeft has a gang tried again when a pod left: one that used GPUs, or any where hosts are what is short.
// Members that pause come back when their time has come: to the scheduler's queue, a bind that fails is a pod that
// left. A gang with a missing or wrong part comes back when that changes; the rest of a gang that has started runs.
func (p *Plugin) afterPodLeft(_ klog.Logger, pod *v1.Pod, old, _ any) (fwk.QueueingHint, error) {
	ref, member := p.gangs.Of(pod)
	if !member {
		return fwk.QueueSkip, nil
	}
	former, ok := old.(*v1.Pod)
	hint := fwk.QueueSkip
	p.machine.Lock(func(l machine.Locked) {
		if l.State.Retries(l.Facts(ref), kube.UIDOf(pod), ok && !kube.WantsVGPU(former), p.now()) {
			hint = fwk.Queue
		}
	})
	return hint, nil
}

// changed takes over that a gang, its object or its members changed.
func (p *Plugin) changed(ref podgroup.Ref) {
	p.followTarget(ref)
	p.machine.Step(func(l machine.Locked) reservation.Event { return reservation.Changed{Gang: l.Facts(ref)} })
	p.machine.Flush(context.Background())
}
