package gpugang

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// grace is the time that members wait in Permit beyond the placement deadline: within it the machine cancels the plan
// and says why.
const grace = 5 * step

// Permit lets a member wait until as many as must run are at their places, and then has all bound at once.
//
// After a group cycle no member waits here but in Bind. All members follow in the same goroutine, to places where the group cycle
// has reserved them. The framework writes the node of every pod that waits in Permit into its status, a request each.
func (p *Plugin) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return nil, 0
	}
	if why := p.heldBack(ref, pod); why != "" { // its target has shrunk meanwhile
		return verdict.New(fwk.Unschedulable, why), 0
	}
	a := p.machine.Step(func(l machine.Locked) reservation.Event {
		return reservation.Permitted{Gang: l.Facts(ref), UID: kube.UIDOf(pod)}
	})
	switch {
	case a.Refuse != nil:
		return verdict.New(fwk.Unschedulable, a.Refuse.Why), 0
	case a.Wait == nil || a.Wait.Briefly:
		return nil, 0
	}
	return verdict.New(fwk.Wait), p.args.PlacementDeadline.Duration + grace
}
