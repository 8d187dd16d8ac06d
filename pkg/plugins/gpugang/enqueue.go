package gpugang

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/internal/verdict"
	"github.com/tandem-gpu/tandem/pkg/gang"
)

// PreEnqueue keeps members out of the queue until as many exist as must run, and those of a gang that was refused while its
// leader is tried on their behalf. Gangs that the scheduler's queue knows are gated by the scheduler's own plugin, as a whole.
//
// What is wrong with a gang is no reason to stay out: PreFilter says it in the pod's event.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return nil
	}
	p.gangs.See(pod)
	if p.gangs.Queues(ref.Source) {
		return nil
	}
	var problem *podgroup.Problem
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.group(ref)
	pg, err := p.gangs.Gang(ref)
	if pg, err = p.afterStart(g, pg, err); errors.As(err, &problem) && problem.Waits {
		g.lacks(about(ref, problem.Message), p.now())
		return verdict.New(fwk.UnschedulableAndUnresolvable, g.incomplete)
	}
	if g.refusal == nil || pg == nil || !g.told[uidOf(pod)] || leads(pg, pod) {
		return nil
	}
	if _, planned := g.places[uidOf(pod)]; planned {
		return nil
	}
	return verdict.New(fwk.UnschedulableAndUnresolvable, g.refusal.words())
}

// lacks notes that a gang waits for members or for its PodGroup. The caller holds the mutex.
func (g *group) lacks(why string, now time.Time) {
	if g.incomplete != why {
		g.incomplete, g.missing = why, now
	}
}

// EventsToRegister names the events after which a refused gang is tried again: a pod leaves its node, a node comes or
// changes. What changes a gang itself activates its leader, once podgroup knows of it.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPodLeft},
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeTaint | fwk.UpdateNodeAllocatable}},
	}, nil
}

// afterPodLeft has a gang tried again when a pod left: one that used GPUs, or any where hosts are what is short. Members that
// pause are tried when their time has come: to the scheduler's queue, a bind that fails is a pod that left. A gang of which
// something is missing or wrong is tried when that changes; what is left of one that has started runs.
func (p *Plugin) afterPodLeft(_ klog.Logger, pod *v1.Pod, old, _ any) (fwk.QueueingHint, error) {
	ref, member := p.gangs.Of(pod)
	if !member {
		return fwk.QueueSkip, nil
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[ref]
	if g == nil {
		return fwk.Queue, nil
	}
	pg, err := p.gangs.Gang(ref)
	if _, err = p.afterStart(g, pg, err); err != nil {
		return fwk.QueueSkip, nil // see changed
	}
	if now := p.now(); g.repairs[uidOf(pod)].at.After(now) || g.retry.After(now) {
		return fwk.QueueSkip, nil
	}
	if left, ok := old.(*v1.Pod); !ok || kube.WantsVGPU(left) || g.refusal == nil || g.refusal.host || g.room != nil {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// changed takes over that a gang, its object or its members changed: places of pods that are gone are given up, and the
// leader, or members that may go, are tried again.
func (p *Plugin) changed(ref podgroup.Ref) {
	defer p.flush(context.Background())
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[ref]
	pg, err := p.gangs.Gang(ref)
	var problem *podgroup.Problem
	if pg == nil || len(pg.Members) == 0 {
		p.end(g)
		return
	}
	if g != nil {
		p.prune(g, pg)
		p.settle(g, pg)
	}
	if g != nil && p.state.drain == ref && p.lacking(g, pg) != g.keptFor {
		p.endDrain(g)
	}
	if g != nil && p.changedUnder(g, pg) {
		p.endRoom(g)
	}
	if errors.As(err, &problem) {
		g = p.state.group(ref)
		p.impede(g, problem)
		p.correct(g, pg, problem)
		return
	}
	if g == nil || !g.planned() && !g.retry.After(p.now()) { // a gang that pauses is tried when its time has come
		p.wakeWaiting(pg, g)
	}
}

// impede notes that a gang cannot be placed now: members that must run are missing, or something is wrong with it. PreEnqueue
// does not see the gangs that the scheduler's own plugin gates. The caller holds the mutex.
func (p *Plugin) impede(g *group, problem *podgroup.Problem) {
	g.short = zero
	p.endDrain(g)
	if !problem.Waits || !g.started { // what is left of a gang that runs is made room for all the same
		p.endRoom(g)
	}
	switch {
	case !problem.Waits && g.Name == "" && p.gangs.Queues(g.Source): // its pods never come out of the scheduler's queue
		g.lacks(problem.Message, p.now())
	case !problem.Waits:
		p.cancel(g, problem.Message)
	case !g.started:
		g.lacks(about(g.Ref, problem.Message), p.now())
	}
}

// correct has the members tried that PreEnqueue kept out because others were missing, once something else is wrong with the
// gang: their messages would say for ever that members are missing. PreFilter says what is wrong. The caller holds the mutex.
func (p *Plugin) correct(g *group, pg *podgroup.Gang, problem *podgroup.Problem) {
	if problem.Waits || g.incomplete == "" || p.gangs.Queues(g.Source) {
		return
	}
	g.incomplete = ""
	for _, m := range pg.Members {
		if waits(m) {
			p.wake(m)
		}
	}
}

// about names the gang that a message is about.
func about(ref podgroup.Ref, message string) string { return "gang " + ref.String() + ": " + message }

// wakeWaiting has the members of a gang tried. Of one that was refused those are the leader, and the members that do not know it
// yet. The caller holds the mutex.
func (p *Plugin) wakeWaiting(pg *podgroup.Gang, g *group) {
	leader := true
	for _, m := range pg.Members {
		if !waits(m) {
			continue
		}
		if leader || g == nil || g.refusal == nil || !g.told[uidOf(m)] {
			p.wake(m)
		}
		leader = false
	}
}

// prune gives up the places of members that are gone: with the whole plan where the others are too few. The caller holds the
// mutex.
func (p *Plugin) prune(g *group, pg *podgroup.Gang) {
	exists := make(map[string]bool, len(pg.Members))
	for _, m := range pg.Members {
		exists[string(m.UID)] = m.DeletionTimestamp == nil || m.Spec.NodeName != ""
		if m.Spec.NodeName != "" {
			delete(g.places, uidOf(m)) // GPUShare drops the hold once the assignment is seen
			delete(g.reserved, uidOf(m))
		}
	}
	for uid := range g.places {
		if !exists[string(uid)] {
			p.drop(g, uid)
		}
	}
	for uid := range g.repairs {
		if !exists[string(uid)] {
			delete(g.repairs, uid)
		}
	}
	for uid := range g.bound {
		if !exists[string(uid)] {
			delete(g.bound, uid)
		}
	}
	if !g.letGo.IsZero() && g.planned() && len(g.reserved) == 0 && p.boundOf(g, pg) == 0 {
		g.letGo, g.started = zero, false
		p.cancel(g, "those that ran have ended") // the others start anew, as a whole
	}
	if g.letGo.IsZero() && g.planned() && len(g.places)+p.boundOf(g, pg) < pg.MinCount {
		p.cancel(g, "a member is gone, and those that are left are too few")
	}
}

// end forgets a gang that has no members any more. The caller holds the mutex.
func (p *Plugin) end(g *group) {
	if g == nil {
		return
	}
	for uid := range g.places {
		p.drop(g, uid)
	}
	p.endDrain(g)
	p.endRoom(g)
	delete(p.state.gangs, g.Ref)
}

// words says why the gang has no plan, and whose turn it is.
func (r *refused) words() string { return r.message + r.turn }

// kinds of refusals that free room may end.
func (r *refused) ofRoom() bool { return r != nil && r.kind == gang.NoRoom }
