package gpugang

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// plan seeks places for the members of a gang that have none, and returns that of the cycle's pod, or why it has none.
func (p *Plugin) plan(ctx context.Context, c *cycle, ref podgroup.Ref, version reservation.Version) (*reservation.Place, string) {
	in, plan, err := p.solve(ctx, c, ref, false)
	if err == nil && plan.Refused != nil && len(in.unresolved) > 0 {
		in, plan, err = p.solve(ctx, c, ref, true)
	}
	if err == nil && plan.Refused == nil && p.planBroken(ctx, c.pod, c.nodes, ref) != "" {
		in, plan, err = p.solve(ctx, c, ref, false)
	}
	if errors.As(err, new(unread)) {
		return nil, err.Error() // no refusal of the gang: the scheduler tries all members once the plugin has read it
	}
	if err != nil {
		return p.refuse(c, ref, &reservation.PlanRefused{Version: version, Refusal: reservation.Refusal{Reason: reservation.Malformed, Message: err.Error()}})
	}
	p.metrics.planned(&plan)
	if plan.Refused != nil {
		return p.handleRefusal(ctx, c, in, &plan, version)
	}
	return p.keepPlan(ctx, c, in, &plan, version)
}

// solve plans a gang. Members with unresolved binds stay where they may be, unless anew is set. If these places are in several
// domains of a level that the gang requires, the plan is refused.
func (p *Plugin) solve(ctx context.Context, c *cycle, ref podgroup.Ref, anew bool) (*planInput, gang.Plan, error) {
	in, err := p.collectInput(ctx, c, ref, anew)
	if err != nil {
		return nil, gang.Plan{}, err
	}
	if len(in.pods) == 0 && len(in.unresolved) > 0 && in.lacking() == 0 {
		apart, err := gang.Apart(in.cluster, in.group, in.config)
		if apart {
			return in, gang.Plan{Refused: &gang.Refusal{Reason: gang.NoRoom}}, err
		}
		return in, gang.Plan{}, err
	}
	plan, err := gang.Place(in.cluster, in.group, in.config)
	return in, plan, err
}

// collectInput takes the lock of the machine and collects what a plan depends on.
func (p *Plugin) collectInput(ctx context.Context, c *cycle, ref podgroup.Ref, anew bool) (in *planInput, err error) {
	pg, _ := p.gangs.Gang(ref)
	if pg == nil {
		return nil, unread{errors.New("gang " + ref.String() + " is gone")}
	}
	adjusted := *pg
	p.machine.Lock(func(l machine.Locked) {
		adjusted.MinCount = l.State.AfterStart(l.Facts(ref)).MinCount
		if in, err = p.buildInput(ctx, l, c, &adjusted, anew); err == nil {
			in.config.SkipExplanation = l.State.Explained(ref, in.lacking(), p.now())
		}
	})
	return in, err
}

// keepPlan has the places of a plan kept.
func (p *Plugin) keepPlan(ctx context.Context, c *cycle, in *planInput, plan *gang.Plan, version reservation.Version) (*reservation.Place, string) {
	e := reservation.PlanFound{UID: kube.UIDOf(c.pod), Version: version, Places: in.placesOf(plan)}
	e.Have = in.placed() + len(e.Places) - len(in.unresolved)
	for _, pod := range slices.Concat(in.pods, in.unresolvedPods) {
		if pod.UID != c.pod.UID {
			e.Others = append(e.Others, kube.UIDOf(pod))
		}
	}
	var a machine.Answer
	p.machine.Lock(func(l machine.Locked) {
		e.Gang = l.Facts(in.gang.Ref)
		a = l.Settle(in.gang.Ref, e.UID, e)
	})
	p.unplaced.note(in.gang, "")
	if a.Place != nil {
		klog.FromContext(ctx).V(2).Info("Planned a gang", "gang", in.gang.String(), "members", len(e.Places), "spread", plan.Spread,
			"domains", plan.Stats.Domains, "tried", plan.Stats.Tried, "cut", plan.Stats.Cut)
	}
	return a.Place, words(a.Refuse)
}

// handleRefusal has the members of a gang without a plan take the room that evictions made for it once that is free. Otherwise it notes the
// refusal, and has room kept for the gang while pods end where it is its turn.
func (p *Plugin) handleRefusal(ctx context.Context, c *cycle, in *planInput, plan *gang.Plan, version reservation.Version) (*reservation.Place, string) {
	ref := in.gang.Ref
	e := &reservation.PlanRefused{Version: version, SkipExplanation: in.config.SkipExplanation}
	ready := false
	var places []vgpu.Assignment
	p.machine.Lock(func(l machine.Locked) {
		if ready, e.Void, e.Kept = p.standing(l.State, in, ref); ready {
			places = l.State.MadeRoom(ref).PlacesOf(in.group.Members)
		}
	})
	if ready {
		plan.Refused, plan.Places = nil, places
		return p.keepPlan(ctx, c, in, plan, version)
	}
	r := plan.Refused
	p.planYielding(ctx, c, ref)
	c.leaveRoomRequest(in, r)
	e.Refusal = reservation.Refusal{Reason: r.Reason, Host: r.Hosts != nil && r.Reason == gang.NoRoom, Lacking: in.lacking()}
	if !e.SkipExplanation {
		e.Refusal.Message = "gang " + ref.String() + " " + r.Words(p.blockers)
	}
	if !e.SkipExplanation && in.placed() >= in.group.MinCount {
		e.Surplus = reservation.Surplus(ref, in.placed(), r.Words(p.blockers))
		p.unplaced.note(in.gang, e.Surplus)
	}
	a := p.note(c, ref, e)
	if a.Seek != nil {
		a = p.seekRoom(ctx, c, in, a.Seek, r.Blockers)
	}
	return a.Place, words(a.Refuse)
}

// refuse notes why a gang has no plan.
func (p *Plugin) refuse(c *cycle, ref podgroup.Ref, e *reservation.PlanRefused) (*reservation.Place, string) {
	a := p.note(c, ref, e)
	return a.Place, words(a.Refuse)
}

func (p *Plugin) note(c *cycle, ref podgroup.Ref, e *reservation.PlanRefused) machine.Answer {
	return p.machine.Step(func(l machine.Locked) reservation.Event {
		e.Gang, e.UID = l.Facts(ref), kube.UIDOf(c.pod)
		return *e
	})
}

// seekRoom looks for room to keep for a gang while pods end. The gang would have a place once the pods of after have
// ended.
func (p *Plugin) seekRoom(ctx context.Context, c *cycle, in *planInput, seek *reservation.SeekRoom, after []gang.Blocker) (a machine.Answer) {
	now := p.now()
	e := reservation.RoomSought{Ref: in.gang.Ref, UID: kube.UIDOf(c.pod)}
	cluster := *in.cluster
	cluster.Avoids = func(node string) bool { return seek.Avoid[node] }
	turn := gang.DrainCheck{Drains: drainsOf(p.args.Drain), Since: seek.Since.Unix(), Now: now.Unix(), Started: p.startOf}
	plan, err := gang.Keep(&cluster, in.group, in.config, turn)
	if plan.Refused != nil && len(seek.Avoid) > 0 {
		e.Anywhere = true
		plan, err = gang.Keep(in.cluster, in.group, in.config, turn)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot seek room to keep for a gang", "gang", in.gang.String())
	}
	if plan.Places == nil {
		e.Later = p.notYet(&plan, after, seek.Since, now)
	} else {
		e.Found, e.Holds = &plan, in.holds(&plan)
	}
	p.machine.Lock(func(l machine.Locked) { a = l.Settle(in.gang.Ref, e.UID, e) })
	return a
}

// holds returns what keeps the devices of a plan until its pods have ended.
func (in *planInput) holds(plan *gang.Plan) (holds []vgpu.Hold) {
	for i, a := range plan.Places {
		if a.Node != "" && len(a.Containers) > 0 {
			holds = append(holds, vgpu.Hold{Assignment: a, Priority: priorityOf(in.pods[i]), Until: plan.Until})
		}
	}
	return holds
}

// notYet says why the scheduler keeps no room for a gang that would have a place after the ends of some pods. It
// returns "" where there is nothing to add: where the end of no pod helps, the refusal says why.
func (p *Plugin) notYet(plan *gang.Plan, after []gang.Blocker, since, now time.Time) string {
	undeclared := func(l gang.Blocker) bool { return p.endOf(l.UID, l.Pod) == 0 }
	switch {
	case p.args.Drain != config.DrainBounded:
		return ""
	case plan.Until > 0:
		return "; no room is kept for it yet: the last of the pods to wait for ends within " + duration.HumanDuration(time.Unix(plan.Until, 0).Sub(now)) +
			", and the gang has waited for " + duration.HumanDuration(now.Sub(since))
	case slices.ContainsFunc(after, undeclared):
		return "; no room is kept for it: pods in its way do not say when they end (activeDeadlineSeconds)"
	}
	return ""
}
