package gpugang

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// Reserve notes that a member is at its place. In a group cycle it notes that for the cycle only: it is undone and done again. A
// pod outside of gangs has its node once the running gangs that lack members have had their turn.
func (p *Plugin) Reserve(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return p.reserveAfterBroken(ctx, pod)
	}
	if cs.IsPodGroupSchedulingCycle() {
		if g := groupCycleOf(cs.GetPodGroupSchedulingCycle()); g != nil {
			g.reserved[kube.UIDOf(pod)] = node
		}
		return nil
	}
	a := p.machine.Step(func(machine.Locked) reservation.Event { return reservation.Reserved{Ref: ref, UID: kube.UIDOf(pod)} })
	if a.Refuse != nil {
		return verdict.New(fwk.Unschedulable, a.Refuse.Why)
	}
	return nil
}

// Unreserve ends the plan when a member fails before the scheduler may bind the members: all or none. After that it
// keeps the place, and the member comes back to it.
func (p *Plugin) Unreserve(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, _ string) {
	ref, ok := p.gangs.Of(pod)
	if !ok || cs.IsPodGroupSchedulingCycle() {
		return
	}
	p.machine.Step(func(l machine.Locked) reservation.Event {
		return reservation.Unreserved{Gang: l.Facts(ref), UID: kube.UIDOf(pod), Pod: kube.PathOf(pod)}
	})
	p.machine.Flush(ctx)
}
