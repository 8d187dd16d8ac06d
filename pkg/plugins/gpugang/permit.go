package gpugang

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/internal/verdict"
)

// Reserve notes that a member is at its place. In a group cycle it notes that for the cycle only: it is undone and done again.
func (p *Plugin) Reserve(_ context.Context, cs fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return nil
	}
	if cs.IsPodGroupSchedulingCycle() {
		if t := trialOf(cs.GetPodGroupSchedulingCycle()); t != nil {
			t.reserved[uidOf(pod)] = node
		}
		return nil
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.group(ref)
	if _, planned := g.places[uidOf(pod)]; !planned {
		return givenUp()
	}
	g.reserved[uidOf(pod)] = true
	return nil
}

// Unreserve ends the plan when a member fails before the members were let go: all or none. After that it keeps the place, and
// the member comes back to it.
func (p *Plugin) Unreserve(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, _ string) {
	ref, ok := p.gangs.Of(pod)
	if !ok || cs.IsPodGroupSchedulingCycle() {
		return
	}
	defer p.flush(ctx)
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[ref]
	if g == nil || !g.reserved[uidOf(pod)] {
		return
	}
	pg, _ := p.gangs.Gang(ref)
	if g.letGo.IsZero() {
		p.cancel(g, "member "+pod.Name+" could not be reserved, or its siblings did not come in time")
		return
	}
	delete(g.reserved, uidOf(pod))
	if len(g.reserved) == 0 && (pg == nil || p.boundOf(g, pg) == 0) {
		p.cancel(g, "no member could be bound") // it starts over as a whole
		return
	}
	r := g.repairs[uidOf(pod)]
	r.failures++
	r.at = p.now().Add(backoff(r.failures))
	g.repairs[uidOf(pod)] = r
	p.metrics.repairs.WithLabelValues(repairKept).Inc()
}

// grace is what members wait in Permit beyond the placement deadline: the plan is cancelled within it, which says why.
const grace = 5 * step

// Permit lets a member wait until as many as must run are at their places, and then lets all go at once.
//
// After a group cycle nobody waits here but in Bind: all members follow in the same goroutine, to places where they have been
// reserved on trial, and the framework writes the node of every pod that waits in Permit into its status, a request each.
func (p *Plugin) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return nil, 0
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.group(ref)
	if !g.letGo.IsZero() {
		return nil, 0
	}
	pg, _ := p.gangs.Gang(ref)
	if pg == nil {
		return verdict.New(fwk.Unschedulable, "the gang is gone"), 0
	}
	if p.boundOf(g, pg)+len(g.reserved) < pg.MinCount {
		if g.grouped {
			return nil, 0
		}
		return verdict.New(fwk.Wait), p.args.PlacementDeadline.Duration + grace
	}
	p.letGo(g, pg)
	return nil, 0
}

// letGo allows all members that wait. The caller holds the mutex.
func (p *Plugin) letGo(g *group, pg *podgroup.Gang) {
	g.letGo = p.now()
	g.failures = 0
	g.open()
	for uid := range g.reserved {
		if waiting := p.handle.GetWaitingPod(uidForFramework(uid)); waiting != nil {
			waiting.Allow(Name)
		}
	}
	if !g.arrived.IsZero() {
		p.metrics.waited.Observe(p.now().Sub(g.arrived).Seconds())
		g.arrived = zero
	}
	if g.grouped {
		return // the condition of the PodGroup says it
	}
	p.say(g, pg, v1.EventTypeNormal, "GangPlaced", "all that must run have a place: "+spreadOf(g))
}

// open lets members go on that wait in Bind. The caller holds the mutex.
func (g *group) open() {
	select {
	case <-g.gate:
	default:
		close(g.gate)
	}
}

// Bind binds nobody: it lets a member wait until its gang is let go, and leaves the rest to GPUShare and DefaultBinder, which
// the profile lists after it.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return verdict.New(fwk.Skip)
	}
	p.state.mu.Lock()
	g := p.state.group(ref)
	gate, reserved := g.gate, g.reserved[uidOf(pod)]
	p.state.mu.Unlock()
	if !reserved { // the gate is that of another plan
		return givenUp()
	}
	ctx, cancel := context.WithTimeout(ctx, p.args.PlacementDeadline.Duration)
	defer cancel()
	select {
	case <-gate:
	case <-ctx.Done():
		return verdict.New(fwk.Unschedulable, "the siblings of the pod did not come in time")
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if g := p.state.group(ref); g.letGo.IsZero() || !g.reserved[uidOf(pod)] {
		return givenUp()
	}
	return verdict.New(fwk.Skip)
}

func givenUp() *fwk.Status {
	return verdict.New(fwk.Unschedulable, "the plan of the gang was given up meanwhile")
}

// PostBind notes that a member is bound.
func (p *Plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.group(ref)
	g.bound[uidOf(pod)] = true
	delete(g.reserved, uidOf(pod))
	delete(g.repairs, uidOf(pod))
	pg, _ := p.gangs.Gang(ref)
	p.settle(g, pg)
}

// settle notes that a gang has started, once as many as must run are bound. The caller holds the mutex.
func (p *Plugin) settle(g *group, pg *podgroup.Gang) {
	if pg != nil && p.boundOf(g, pg) >= pg.MinCount {
		g.started, g.preempted, g.voids = true, false, 0
	}
}

// lacking counts the members that must run and have no place, as the informer's store tells: plans go by that, and the gang's copy
// of a member may be behind it. The caller holds the mutex.
func (p *Plugin) lacking(g *group, pg *podgroup.Gang) int {
	bound := 0
	for _, m := range pg.Members {
		if m = p.seen(uidOf(m), pathOf(m)); m != nil && p.isOn(g, m) {
			bound++
		}
	}
	return max(0, pg.MinCount-bound-len(g.places))
}

// boundOf counts the members that are bound, as the API or the own Bindings tell, and are not being deleted. The caller holds
// the mutex.
func (p *Plugin) boundOf(g *group, pg *podgroup.Gang) int {
	count := 0
	for _, m := range pg.Members {
		if p.isOn(g, m) {
			count++
		}
	}
	return count
}

// isOn reports whether a member is bound, as the API or the own Bindings of a gang tell, which may be nil, and is not being
// deleted. The caller holds the mutex.
func (p *Plugin) isOn(g *group, m *v1.Pod) bool {
	return m.DeletionTimestamp == nil && (m.Spec.NodeName != "" || g != nil && g.bound[uidOf(m)])
}
