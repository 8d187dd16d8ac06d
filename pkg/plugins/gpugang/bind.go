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

// Bind binds no pod: it makes a member wait until the scheduler may bind all of its gang. The plugins GPUShare and
// DefaultBinder bind it, which the profile lists after this one.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return verdict.New(fwk.Skip)
	}
	gate, reserved := p.machine.Gate(ref, kube.UIDOf(pod))
	if !reserved { // the gate is that of another plan
		return verdict.New(fwk.Unschedulable, reservation.GivenUp)
	}
	if gate == nil {
		return verdict.New(fwk.Skip)
	}
	ctx, cancel := context.WithTimeout(ctx, p.args.PlacementDeadline.Duration)
	defer cancel()
	select {
	case <-gate:
	case <-ctx.Done():
		return verdict.New(fwk.Unschedulable, "the siblings of the pod did not come in time")
	}
	if gate, reserved := p.machine.Gate(ref, kube.UIDOf(pod)); gate != nil || !reserved {
		return verdict.New(fwk.Unschedulable, reservation.GivenUp)
	}
	return verdict.New(fwk.Skip)
}

// PostBind notes that a member has its node.
func (p *Plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if ref, ok := p.gangs.Of(pod); ok {
		p.machine.Step(func(l machine.Locked) reservation.Event {
			return reservation.Bound{Gang: l.Facts(ref), UID: kube.UIDOf(pod)}
		})
	}
}
