package gpugang

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bind binds no pod: it lets a member wait until all of its gang may be bound, and leaves the rest to GPUShare and DefaultBinder,
// which the profile lists after it.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return verdict.New(fwk.Skip)
	}
	gate, reserved := p.gateOf(ref, uidOf(pod))
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
	if gate, reserved := p.gateOf(ref, uidOf(pod)); gate != nil || !reserved {
		return verdict.New(fwk.Unschedulable, reservation.GivenUp)
	}
	return verdict.New(fwk.Skip)
}

// gateOf returns what a member waits for, nil for nothing, and whether it is reserved.
func (p *Plugin) gateOf(ref podgroup.Ref, uid vgpu.UID) (gate chan struct{}, reserved bool) {
	p.read(func(s *reservation.State) {
		number, is := s.Gate(ref, uid)
		if reserved = is; number != 0 && reserved {
			gate = p.machine.gate(number)
		}
	})
	return gate, reserved
}

// PostBind notes that a member is bound.
func (p *Plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if ref, ok := p.gangs.Of(pod); ok {
		p.with(func(*reservation.State) reservation.Event {
			return reservation.Bound{Gang: p.facts(ref), UID: uidOf(pod)}
		})
	}
}
