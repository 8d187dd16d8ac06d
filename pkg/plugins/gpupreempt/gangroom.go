package gpupreempt

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// requested returns the gang that a cycle refused because room is lacking. The result is nil where there is no such
// gang, or evictions make room for it already. why is the reason where the plugin has just sought victims for it in
// vain.
func (p *Plugin) requested(cycle podgroup.Cycle, ref podgroup.Ref) (r *podgroup.RoomRequest, why string) {
	if r = podgroup.RoomRequestOf(cycle, ref); r == nil {
		return nil, ""
	}
	p.machine.Lock(func(l machine.Locked) {
		if !l.State.Wants(ref) {
			r = nil
			return
		}
		if a := l.Step(reservation.RoomWanted{Ref: ref}); a.Refuse != nil {
			why = a.Refuse.Why
		} else if r.Grouped {
			why = p.paused(l, r)
		}
	})
	if why != "" {
		return nil, why
	}
	return r, ""
}

// paused says why a gang that the scheduler tries in one cycle gets no room now, "" where the scheduler can try the
// least number of members. Others pause after their binds failed, and the cycle would fail for them whatever room there
// is.
func (p *Plugin) paused(l machine.Locked, r *podgroup.RoomRequest) string {
	var last *v1.Pod
	var longest time.Duration
	f := l.FactsOf(r.Ref, r.Gang, nil)
	able := l.State.Bound(&f)
	for _, pod := range r.Pods {
		pause, _ := l.State.RetriedIn(r.Ref, kube.UIDOf(pod), p.now())
		if pause <= 0 {
			able++
		} else if pause > longest {
			last, longest = pod, pause
		}
	}
	if last == nil || able >= r.MinCount {
		return ""
	}
	return fmt.Sprintf("none before member %s is tried again in %v, since its last bind failed", last.Name, longest.Round(time.Second))
}

// errChanged says that a gang has changed since its refusal.
var errChanged = errors.New(reservation.MembersChanged)

// keepGangRoom has the room of a plan kept for a gang: see reservation.RoomMade. The error says why it is not; it is
// errChanged where members ended or got a node since the cycle looked at them.
func (p *Plugin) keepGangRoom(a *gangAttempt) error {
	made := reservation.Made{
		Places: map[vgpu.UID]reservation.Place{}, Victims: map[vgpu.UID]reservation.Victim{},
		Lacking: max(0, a.Group.MinCount-len(a.Group.Placed)), Unbound: a.Unbound,
	}
	for i, place := range a.plan.Places {
		if place.Node != "" {
			made.Places[place.UID] = reservation.Place{Assignment: place, Host: a.Group.Members[i].Request.Host, Pinned: true}
		}
	}
	longest := time.Duration(0)
	for _, pod := range a.leavingPods() {
		made.Victims[kube.UIDOf(pod)] = reservation.Victim{Pod: kube.PathOf(pod), Node: pod.Spec.NodeName}
		longest = max(longest, kube.GracePeriod(pod))
	}
	made.Until = p.now().Add(longest)
	answer := machine.Answer{Refuse: &reservation.Refuse{Why: "it is gone"}}
	gangs := p.machine.Gangs()
	p.machine.Lock(func(l machine.Locked) {
		if pg, problem := gangs.Gang(a.Ref); pg != nil {
			answer = l.Settle(a.Ref, "", reservation.RoomMade{Gang: l.Latest(a.Ref, pg, problem), Room: made})
		}
	})
	switch {
	case len(answer.Unheld) > 0:
		return fmt.Errorf("keep room for gang %s: %w", a.Ref, answer.Unheld[0].Err)
	case answer.Refuse != nil && answer.Refuse.Why == reservation.MembersChanged:
		return fmt.Errorf("keep room for gang %s: %w", a.Ref, errChanged)
	case answer.Refuse != nil:
		return fmt.Errorf("keep room for gang %s: %w", a.Ref, errors.New(answer.Refuse.Why))
	}
	return nil
}

// dryRunIn gives the members the places of their holds while fits runs: fits makes the scheduler's plugins look at
// them, without the victims. There is no plan. The result is that of fits.
func (p *Plugin) dryRunIn(ref podgroup.Ref, fits func() bool) bool {
	isKept := false
	set := func(on bool) {
		p.machine.Step(func(l machine.Locked) reservation.Event {
			isKept = l.State.MadeRoom(ref) != nil
			return reservation.RoomTried{Ref: ref, On: on}
		})
	}
	set(true)
	if !isKept {
		return false
	}
	defer set(false)
	return fits()
}

// giveUp ends the room for a gang, if any: see reservation.RoomGivenUp.
func (p *Plugin) giveUp(ref podgroup.Ref, why string, pause time.Duration) {
	p.machine.Step(func(machine.Locked) reservation.Event {
		return reservation.RoomGivenUp{Ref: ref, Why: why, Pause: pause}
	})
	p.machine.Flush(context.Background())
}

// isReserving reports whether the scheduler keeps room for a gang while its present owners end, which keepGangRoom
// would end.
func (p *Plugin) isReserving(ref podgroup.Ref) (is bool) {
	p.machine.Lock(func(l machine.Locked) {
		_, need := l.State.Phase(ref)
		is = need == reservation.Reserving
	})
	return is
}

// least returns how many members of a gang stay unless all go: more than it has where all go or none.
func (p *Plugin) least(ref podgroup.Ref) (least int) {
	p.machine.Lock(func(l machine.Locked) {
		f := l.Facts(ref)
		least = l.State.Least(&f)
	})
	return least
}

// isSurplus reports whether the gang of a pod does without it: it runs on without all that leave, or all of it leave.
// Members may have ended since that decision; isSurplus does not know of one that ends at this very moment.
func (p *Plugin) isSurplus(pod *v1.Pod) bool {
	ref, isMember := p.machine.GangOf(pod)
	isTorn := false
	if isMember {
		p.machine.Lock(func(l machine.Locked) {
			f := l.Facts(ref)
			isTorn = l.State.Torn(&f, func(uid vgpu.UID) bool { return l.State.IsChosen(uid, p.now()) })
		})
	}
	return !isTorn
}

// blockPlacement keeps the other members of gangs that go whole from places: see reservation.Vacated. The block ends
// when all of them are ending, and where an eviction does not begin in 30 seconds.
func (p *Plugin) blockPlacement(e *eviction) {
	for _, u := range e.plan.Evict {
		if u.Kind != preemption.Whole {
			continue
		}
		uids := make([]vgpu.UID, len(u.Pods))
		for i, at := range u.Pods {
			uids[i] = kube.UIDOf(e.pods[at])
		}
		for _, at := range u.Pods {
			if ref, isMember := p.machine.GangOf(e.pods[at]); isMember {
				p.machine.Step(func(machine.Locked) reservation.Event { return reservation.Vacated{Ref: ref, Members: uids} })
				break
			}
		}
	}
}

// withdrawMember takes back a member without a node, in memory, where that takes no eviction. If the members of a gang
// must not bind yet, it gives up the plan with all members. A member that lost its place already stays where it is. The
// result says whether there is nothing to evict.
func (p *Plugin) withdrawMember(ctx context.Context, pod *v1.Pod) (withdrawn bool) {
	ref, isMember := p.machine.GangOf(pod)
	seen := p.seen(pod)
	if !isMember || seen == nil || seen.Spec.NodeName != "" {
		return false
	}
	p.machine.Lock(func(l machine.Locked) {
		if withdrawn = l.State.Withdrawable(ref, kube.UIDOf(pod)); withdrawn {
			l.Step(reservation.Withdrawn{Gang: l.Facts(ref), UID: kube.UIDOf(pod)})
		}
	})
	p.machine.Flush(ctx)
	return withdrawn
}
