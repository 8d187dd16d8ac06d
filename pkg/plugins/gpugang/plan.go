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
	t, plan, err := p.solve(ctx, c, ref, false)
	if err == nil && plan.Refused != nil && len(t.doubtful) > 0 {
		t, plan, err = p.solve(ctx, c, ref, true)
	}
	if errors.As(err, new(unread)) {
		return nil, err.Error() // the gang is not refused: all members are tried when it is read
	}
	if err != nil {
		return p.refuse(c, ref, &reservation.PlanRefused{Version: version, Refusal: reservation.Refusal{Reason: reservation.Malformed, Message: err.Error()}})
	}
	p.metrics.planned(&plan)
	if plan.Refused != nil {
		return p.refused(ctx, c, t, &plan, version)
	}
	return p.found(ctx, c, t, &plan, version)
}

// solve plans a gang, its members in doubt where they may be, or anew.
func (p *Plugin) solve(ctx context.Context, c *cycle, ref podgroup.Ref, anew bool) (*task, gang.Plan, error) {
	t, err := p.ask(ctx, c, ref, anew)
	if err != nil {
		return nil, gang.Plan{}, err
	}
	if len(t.pods) == 0 && len(t.doubtful) > 0 && t.lacking() == 0 {
		return t, gang.Plan{}, nil
	}
	plan, err := gang.Place(t.cluster, t.group, t.config)
	return t, plan, err
}

// ask collects what a plan depends on.
func (p *Plugin) ask(ctx context.Context, c *cycle, ref podgroup.Ref, anew bool) (t *task, err error) {
	pg, _ := p.gangs.Gang(ref)
	if pg == nil {
		return nil, unread{errors.New("gang " + ref.String() + " is gone")}
	}
	left := *pg
	p.machine.Lock(func(l machine.Locked) {
		left.MinCount = l.State.AfterStart(l.Facts(ref)).MinCount
		if t, err = p.task(ctx, l, c, &left, anew); err == nil {
			t.config.SkipExplanation = l.State.Explained(ref, t.lacking(), p.now())
		}
	})
	return t, err
}

// found has the places of a plan kept.
func (p *Plugin) found(ctx context.Context, c *cycle, t *task, plan *gang.Plan, version reservation.Version) (*reservation.Place, string) {
	e := reservation.PlanFound{UID: kube.UIDOf(c.pod), Version: version, Places: t.chosen(plan)}
	e.Have = t.placed() + len(e.Places) - len(t.doubtful)
	for _, pod := range slices.Concat(t.pods, t.unsure) {
		if pod.UID != c.pod.UID {
			e.Others = append(e.Others, kube.UIDOf(pod))
		}
	}
	var a machine.Answer
	p.machine.Lock(func(l machine.Locked) {
		e.Gang = l.Facts(t.gang.Ref)
		a = l.Settle(t.gang.Ref, e.UID, e)
	})
	if a.Place != nil {
		klog.FromContext(ctx).V(2).Info("Planned a gang", "gang", t.gang.String(), "members", len(e.Places), "spread", plan.Spread,
			"domains", plan.Stats.Domains, "tried", plan.Stats.Tried, "cut", plan.Stats.Cut)
	}
	return a.Place, words(a.Refuse)
}

// refused has the members of a gang without a plan take the room that evictions made for it once that is free. Otherwise it notes the
// refusal, and has room kept for the gang while pods end where it is its turn.
func (p *Plugin) refused(ctx context.Context, c *cycle, t *task, plan *gang.Plan, version reservation.Version) (*reservation.Place, string) {
	ref := t.gang.Ref
	e := &reservation.PlanRefused{Version: version, SkipExplanation: t.config.SkipExplanation}
	ready := false
	var places []vgpu.Assignment
	p.machine.Lock(func(l machine.Locked) {
		if ready, e.Void, e.Kept = p.standing(l.State, t, ref); ready {
			places = l.State.MadeRoom(ref).PlacesOf(t.group.Members)
		}
	})
	if ready {
		plan.Refused, plan.Places = nil, places
		return p.found(ctx, c, t, plan, version)
	}
	r := plan.Refused
	c.leave(t, r)
	e.Refusal = reservation.Refusal{Reason: r.Reason, Host: r.Hosts != nil && r.Reason == gang.NoRoom, Lacking: t.lacking()}
	if !e.SkipExplanation {
		e.Refusal.Message = "gang " + ref.String() + " " + r.Words(p.blockers)
	}
	if !e.SkipExplanation && t.placed() >= t.group.MinCount {
		e.Surplus = reservation.Surplus(ref, t.placed(), r.Words(p.blockers))
	}
	a := p.note(c, ref, e)
	if a.Seek != nil {
		a = p.seekRoom(ctx, c, t, a.Seek, r.Blockers)
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

// seekRoom looks for room that can be kept for a gang while pods end, where the time for that has come. after are the pods after
// whose ends the gang would have a place.
func (p *Plugin) seekRoom(ctx context.Context, c *cycle, t *task, seek *reservation.SeekRoom, after []gang.Blocker) (a machine.Answer) {
	now := p.now()
	e := reservation.RoomSought{Ref: t.gang.Ref, UID: kube.UIDOf(c.pod)}
	cluster := *t.cluster
	cluster.Avoids = func(node string) bool { return seek.Avoid[node] }
	turn := gang.DrainCheck{Drains: drainsOf(p.args.Drain), Since: seek.Since.Unix(), Now: now.Unix(), Started: p.startOf}
	plan, err := gang.Keep(&cluster, t.group, t.config, turn)
	if plan.Refused != nil && len(seek.Avoid) > 0 {
		e.Anywhere = true
		plan, err = gang.Keep(t.cluster, t.group, t.config, turn)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot seek room to keep for a gang", "gang", t.gang.String())
	}
	if plan.Places == nil {
		e.Later = p.notYet(&plan, after, seek.Since, now)
	} else {
		e.Found, e.Holds = &plan, t.holds(&plan)
	}
	p.machine.Lock(func(l machine.Locked) { a = l.Settle(t.gang.Ref, e.UID, e) })
	return a
}

// holds returns what keeps the devices of a plan until its pods have ended.
func (t *task) holds(plan *gang.Plan) (holds []vgpu.Hold) {
	for i, a := range plan.Places {
		if a.Node != "" && len(a.Containers) > 0 {
			holds = append(holds, vgpu.Hold{Assignment: a, Priority: priorityOf(t.pods[i]), Until: plan.Until})
		}
	}
	return holds
}

// notYet says why no room is kept for a gang that would have a place after the ends of some pods, "" for what needs no words: where
// the end of no pod helps the refusal says why.
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
