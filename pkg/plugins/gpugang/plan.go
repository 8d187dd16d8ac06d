package gpugang

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// malformed is the kind of refusals that only a change of the gang's objects helps.
const malformed gang.Reason = "Malformed"

// plan makes a plan for the members that have no place, keeps their room and returns the place of the cycle's pod, or why it
// has none. The caller holds the mutex.
func (p *Plugin) plan(ctx context.Context, c cycle, pg *podgroup.Gang, g *group) (*place, string) {
	if left := g.retry.Sub(p.now()); left > 0 {
		// The queue's own backoff is none where nothing else is to be tried, and two gangs could have each other tried for ever.
		return nil, fmt.Sprintf("gang %s is planned again in %v: its last plan came to nothing", g.Ref, left.Round(time.Second))
	}
	p.metrics.attempts.Inc()
	if _, had := g.places[uidOf(c.pod)]; had {
		p.lose(g, c.pod)
	}
	if g.arrived.IsZero() {
		g.arrived = p.now()
	}
	if p.stillThere(g) {
		return nil, "gang " + g.String() + " is planned anew when the members of its last plan are taken back"
	}
	p.adoptHalf(pg, g)
	t, plan, err := p.solve(ctx, c, pg, g, false)
	if err == nil && plan.Refused != nil && len(t.doubtful) > 0 {
		t, plan, err = p.solve(ctx, c, pg, g, true)
	}
	if errors.As(err, new(unread)) {
		return nil, err.Error() // the gang is not refused: all members are tried when it is read
	}
	if err != nil {
		return nil, p.refuse(g, c.pod, refused{kind: malformed, message: err.Error()})
	}
	p.metrics.planned(&plan)
	if plan.Refused != nil {
		p.afterRefusal(c, pg, g, t, &plan)
	}
	if plan.Refused != nil && t.config.Brief {
		g.told[uidOf(c.pod)] = true
		g.refusal.turn = p.drainFor(ctx, g, t, nil)
		return nil, g.refusal.words() + g.roomMade()
	}
	if plan.Refused != nil {
		return nil, p.wait(ctx, c.pod, g, t, plan.Refused) + g.roomMade()
	}
	if err := p.keep(g, t, &plan); err != nil {
		p.cancel(g, err.Error())
		return nil, p.refuse(g, c.pod, refused{kind: gang.NoRoom, message: err.Error()})
	}
	at, ok := g.places[uidOf(c.pod)]
	if !ok {
		return nil, surplus(g, t.placed()+len(t.chosen(&plan))-len(t.doubtful), "")
	}
	klog.FromContext(ctx).V(2).Info("Planned a gang", "gang", g.String(), "members", len(g.places), "spread", plan.Spread,
		"domains", plan.Stats.Domains, "tried", plan.Stats.Tried, "cut", plan.Stats.Cut)
	if !c.grouped() {
		p.wake(slices.DeleteFunc(slices.Concat(t.pods, t.unsure), func(pod *v1.Pod) bool { return pod.UID == c.pod.UID })...)
	}
	return &at, ""
}

// solve plans a gang, its members in doubt where they may be, or anew. The caller holds the mutex.
func (p *Plugin) solve(ctx context.Context, c cycle, pg *podgroup.Gang, g *group, anew bool) (*task, gang.Plan, error) {
	t, err := p.task(ctx, c, pg, g, anew)
	if err != nil {
		return nil, gang.Plan{}, err
	}
	t.config.Brief = p.explained(g, t)
	if len(t.pods) == 0 && len(t.doubtful) > 0 && t.lacking() == 0 {
		return t, gang.Plan{}, nil
	}
	plan, err := gang.Place(t.cluster, t.group, t.config)
	return t, plan, err
}

// surplus says that a gang may run without a member.
func surplus(g *group, placed int, why string) string {
	text := fmt.Sprintf("gang %s has places for %d members, enough to run, and none for this pod", g.Ref, placed)
	if why != "" {
		text += ": it " + why
	}
	return text
}

// explainAgain is how long the reason why a gang waits for room is repeated before it is sought anew. Finding the nearest miss
// takes longer than finding that there is no room, and a hundred gangs may wait.
const explainAgain = 30 * time.Second

// explained reports whether it is enough to know that a gang has no room: why was found a moment ago for as many members, and no
// room is kept for it, nor is it its turn. The caller holds the mutex.
func (p *Plugin) explained(g *group, t *task) bool {
	if !g.refusal.ofRoom() || g.refusal.lacking != t.lacking() || p.now().Sub(g.refusal.at) >= explainAgain {
		return false
	}
	return !g.short.IsZero() && p.state.drain != g.Ref && p.state.head(p.now()) != g
}

// stillThere reports whether the snapshot of this cycle has members of a cancelled plan at their places. The caller holds the
// mutex.
func (p *Plugin) stillThere(g *group) bool {
	nodes := p.handle.SnapshotSharedLister().NodeInfos()
	maps.DeleteFunc(g.leaving, func(uid vgpu.UID, name string) bool {
		info, err := nodes.Get(name)
		return err != nil || !slices.ContainsFunc(info.GetPods(), func(pod fwk.PodInfo) bool { return uidOf(pod.GetPod()) == uid })
	})
	return len(g.leaving) > 0
}

// keep writes a plan down and has its room kept. The caller holds the mutex.
func (p *Plugin) keep(g *group, t *task, plan *gang.Plan) error {
	p.endDrain(g)
	if !g.planned() {
		g.made = p.now()
	}
	defer p.endRoom(g)
	g.preempted = g.room != nil
	for _, at := range t.chosen(plan) {
		at.pinned, at.within = at.held() || g.failures > 0, t.within(at.Node)
		if at.held() {
			if err := p.shares().Hold(vgpu.Hold{Assignment: at.Assignment, Priority: g.priority}); err != nil {
				return err
			}
		}
		g.places[at.UID] = at
	}
	g.refusal, g.short, g.retry, g.look, g.dryTimes = nil, zero, zero, zero, 0
	clear(g.failed)
	g.unhelped, g.asked = "", 0
	g.told = map[vgpu.UID]bool{}
	return nil
}

// lose drops the place of a pod whose room is lost: with the whole plan before the members are let go, alone after that.
// The caller holds the mutex.
func (p *Plugin) lose(g *group, pod *v1.Pod) {
	if g.letGo.IsZero() {
		p.cancel(g, "the room of pod "+klog.KObj(pod).String()+" is lost: its node or its devices are gone")
		return
	}
	p.drop(g, uidOf(pod))
	p.metrics.repairs.WithLabelValues(repairMoved).Inc()
}

// drop forgets one place, with its hold. The caller holds the mutex.
func (p *Plugin) drop(g *group, uid vgpu.UID) {
	if at, ok := g.places[uid]; ok && at.held() {
		p.shares().Release(uid)
	}
	delete(g.places, uid)
	delete(g.reserved, uid)
}

// cancel ends a plan before its members are let go: all holds are released, members that wait in Permit are rejected, and the
// leader is tried again later. The caller holds the mutex.
func (p *Plugin) cancel(g *group, why string) {
	if !g.planned() {
		return
	}
	for uid, at := range g.places {
		if g.reserved[uid] {
			g.leaving[uid] = at.Node
		}
		if waiting := p.handle.GetWaitingPod(uidForFramework(uid)); waiting != nil {
			waiting.Reject(Name, g.rejection(why))
		}
		p.drop(g, uid)
	}
	g.open()
	g.forget()
	g.failures++
	g.retry = p.now().Add(backoff(g.failures))
	if g.preempted { // the room that others were evicted for came to nothing
		g.ask, g.preempted = p.now().Add(p.again(g.voids)), false
		g.voids++
	}
	p.metrics.cancelled.Inc()
	p.stir(g.Ref)
}

// rejection says why members that wait at their places are sent away, in words that differ from those of the last time: the
// scheduler's queue of Kubernetes 1.37 now and then loses a pod that comes back from Permit (kubernetes#139186), and what brings
// it back is that its condition changes.
func (g *group) rejection(why string) string {
	text := "gang " + g.String() + ": " + why
	if g.failures > 0 {
		text += fmt.Sprintf(" (%d plans in a row came to nothing)", g.failures+1)
	}
	return text
}

// refuse notes why a gang has no plan, for its other members, and returns it. The caller holds the mutex.
func (p *Plugin) refuse(g *group, pod *v1.Pod, r refused) string {
	if g.refusal == nil || g.refusal.kind != r.kind {
		g.told = map[vgpu.UID]bool{}
		p.metrics.refusals.WithLabelValues(string(r.kind)).Inc()
	}
	r.at = p.now()
	g.refusal = &r
	g.told[uidOf(pod)] = true
	return r.words()
}

// wait notes that a gang has no place now, and has room kept for it when it is its turn. The caller holds the mutex.
func (p *Plugin) wait(ctx context.Context, pod *v1.Pod, g *group, t *task, r *gang.Refusal) string {
	if t.placed() >= t.group.MinCount { // those that are more than the least wait by themselves
		return surplus(g, t.placed(), r.Words(p.leavers))
	}
	message := "gang " + g.String() + " " + r.Words(p.leavers)
	if r.Reason != gang.NoRoom {
		g.short = zero
		p.endDrain(g)
	} else if g.short.IsZero() {
		g.short = p.now()
		g.look, g.later = g.short.Add(p.args.DrainAfter.Duration), ""
	}
	g.uncap = zero
	for _, l := range g.capped {
		if g.uncap.IsZero() || l.until.Before(g.uncap) {
			g.uncap = l.until
		}
	}
	return p.refuse(g, pod, refused{kind: r.Reason, message: message, turn: p.drainFor(ctx, g, t, r.Leavers),
		host: r.Hosts != nil && r.Reason == gang.NoRoom, lacking: t.lacking()})
}

// leavers names the pods that a gang waits for, by their gangs where they have one, with their priority.
func (p *Plugin) leavers(pods []gang.Leaver) string {
	names := make([]string, 0, len(pods))
	for _, l := range pods {
		name := l.Pod
		if pod := p.seen(l.UID, l.Pod); pod != nil {
			if ref, member := p.gangs.Of(pod); member {
				name = ref.String()
			}
			name = fmt.Sprintf("%s (priority %d)", name, priorityOf(pod))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return few(names)
}
