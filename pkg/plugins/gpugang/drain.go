package gpugang

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// drainFor has room kept for a gang that waits for room, when its turn and the time have come, and returns what to add to its
// refusal. after are the pods after whose ends it would have a place. Only one gang drains at a time: two could each keep what the
// other needs. The caller holds the mutex.
func (p *Plugin) drainFor(ctx context.Context, g *group, t *task, after []gang.Leaver) string {
	if g.room != nil || g.short.IsZero() || p.args.Drain == config.DrainDisabled {
		return ""
	}
	now := p.now()
	if p.state.drain == g.Ref && !p.keeps(g, t) {
		p.endDrain(g)
	}
	if p.state.drain == g.Ref {
		if why := p.inVain(g, t, now); why != "" {
			return "; " + why
		}
		return drains(g, now)
	}
	if first := p.before(g, now); first != nil {
		return "; gang " + first.String() + " waits before it"
	}
	if now.Before(g.look) {
		return g.later
	}
	g.woken = zero
	plan, err := p.roomToKeep(g, t, now)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot seek room to keep for a gang", "gang", g.String())
	}
	if plan.Places == nil {
		g.later = p.notYet(g, &plan, after, now)
		return g.later
	}
	p.endDrain(p.state.gangs[p.state.drain])
	p.beginDrain(g, t, &plan, now)
	return drains(g, now)
}

// before returns the gang that has room kept, or whose turn it is, before another, nil for none. The caller holds the mutex.
func (p *Plugin) before(g *group, now time.Time) *group {
	if other := p.state.gangs[p.state.drain]; other != nil && g.priority <= other.priority {
		return other
	}
	if head := p.state.head(now); head != g && !now.Before(g.look) {
		return head
	}
	return nil
}

// roomToKeep returns the room to keep for a gang, without places where the time has not come: it is looked again later then. The
// caller holds the mutex.
func (p *Plugin) roomToKeep(g *group, t *task, now time.Time) (gang.Plan, error) {
	cluster := *t.cluster
	cluster.Avoids = func(node string) bool { return g.failed[node] }
	turn := gang.Turn{Drains: p.drainsOf(), Since: g.short.Unix(), Now: now.Unix(), Started: p.startOf}
	plan, err := gang.Keep(&cluster, t.group, t.config, turn)
	if plan.Refused != nil && len(g.failed) > 0 {
		clear(g.failed) // nothing else is left
		plan, err = gang.Keep(&cluster, t.group, t.config, turn)
	}
	if plan.Places == nil {
		g.look = now.Add(max(lookAgain, time.Duration(turn.Pause())*time.Second))
	}
	return plan, err
}

// drainsOf returns what the arguments say of drains.
func (p *Plugin) drainsOf() gang.Drains {
	switch p.args.Drain {
	case config.DrainEnabled:
		return gang.AllDrains
	case config.DrainBounded:
		return gang.BoundedDrains
	}
	return gang.NoDrains
}

// beginDrain keeps the room of a plan for a gang. The caller holds the mutex.
func (p *Plugin) beginDrain(g *group, t *task, plan *gang.Plan, now time.Time) {
	p.state.drain, g.until, g.drained, g.keptFor = g.Ref, plan.Until, now, t.lacking()
	g.drain = gang.Kept{Places: plan.Places, Leavers: plan.Leavers}
	for i, a := range plan.Places {
		if a.Node == "" || len(a.Containers) == 0 {
			continue
		}
		h := vgpu.Hold{Assignment: a, Priority: priorityOf(t.pods[i]), Until: plan.Until}
		if p.shares().Hold(h) == nil {
			g.kept = append(g.kept, h)
		}
	}
	p.metrics.drains.Inc()
}

// notYet says why no room is kept for a gang that would have a place after the ends of some pods, "" for what needs no words: where
// nobody's end helps the refusal says why.
func (p *Plugin) notYet(g *group, plan *gang.Plan, after []gang.Leaver, now time.Time) string {
	undeclared := func(l gang.Leaver) bool { return p.endOf(l.UID, l.Pod) == 0 }
	switch {
	case p.args.Drain != config.DrainBounded:
		return ""
	case plan.Until > 0:
		return "; no room is kept for it yet: the last of the pods to wait for ends within " + duration.HumanDuration(time.Unix(plan.Until, 0).Sub(now)) +
			", and the gang has waited for " + duration.HumanDuration(now.Sub(g.short))
	case slices.ContainsFunc(after, undeclared):
		return "; no room is kept for it: pods in its way do not say when they end (activeDeadlineSeconds)"
	}
	return ""
}

// Drains reports whether room is kept for a gang while its present owners end.
func (p *Plugin) Drains(ref podgroup.Ref) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.drain == ref
}

// inVain ends a drain before its timeout, and says why, "" where it goes on: its devices are free, the pods that it waited for
// are gone, and the gang does not fit all the same. The caller holds the mutex.
func (p *Plugin) inVain(g *group, t *task, now time.Time) string {
	taken, short := g.drain.Stand(t.cluster, t.group.Members)
	if len(taken) > 0 {
		return ""
	}
	why, nodes := "its nodes lack something else", g.drain.Nodes()
	if len(short) > 0 {
		why, nodes = few(short)+" lack CPU or memory for it", short
	}
	p.dryUp(g, now, nodes)
	return "the room that was kept for it is free, and " + why
}

// outOfTime ends a drain that has taken too long: the nodes failed on which pods go on that it waited for. The caller holds the
// mutex.
func (p *Plugin) outOfTime(g *group, now time.Time) {
	var nodes []string
	for _, l := range g.drain.Leavers {
		if pod := p.seen(l.UID, l.Pod); pod != nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	p.dryUp(g, now, nodes)
}

// dryUp ends the drain of a gang that came to nothing on some nodes, and lets the next one drain: the gang itself waits, each time
// twice as long. The caller holds the mutex.
func (p *Plugin) dryUp(g *group, now time.Time, nodes []string) {
	p.endDrain(g)
	g.look = now.Add(p.again(g.dryTimes))
	g.dryTimes++
	for _, name := range nodes {
		g.failed[name] = true
	}
	p.stirAll()
}

// again returns the pause after so many drains, or preemptions, that came to nothing and one more.
func (p *Plugin) again(times int) time.Duration {
	return max(step, min(p.args.DrainAfter.Duration, longestPause)) << min(times, maxDoublings)
}

// maxDoublings bounds the pause between drains of one gang that come to nothing: 2¹⁰ times the first, 17 hours of a minute.
const maxDoublings = 10

// keeps reports whether the drain of a gang still holds: its nodes are there with healthy devices, and its members are those
// that it is for, and as many. The caller holds the mutex.
func (p *Plugin) keeps(g *group, t *task) bool {
	if g.keptFor != t.lacking() {
		return false
	}
	wanted := map[vgpu.UID]bool{} // GPUShare drops the hold of a pod that is gone when it hears of it, which may be later
	for i := range t.group.Members {
		wanted[t.group.Members[i].Request.UID] = true
	}
	for i := range g.kept {
		h := &g.kept[i]
		if _, held := p.shares().Held(h.UID); !held || !wanted[h.UID] || !healthy(t.ledger(h.Node), &h.Assignment) {
			return false
		}
	}
	return len(g.kept) > 0
}

// healthy reports whether all devices of an assignment are on the node and healthy.
func healthy(n *vgpu.Node, a *vgpu.Assignment) bool {
	if n == nil {
		return false
	}
	for i := range a.Containers {
		for _, id := range a.Containers[i].Devices {
			if at := n.Index(id); at < 0 || !n.Devices()[at].Healthy {
				return false
			}
		}
	}
	return true
}

// endDrain gives up the room that is kept for a gang. The caller holds the mutex.
func (p *Plugin) endDrain(g *group) {
	if g == nil || p.state.drain != g.Ref {
		return
	}
	for i := range g.kept {
		if _, planned := g.places[g.kept[i].UID]; !planned {
			p.shares().Release(g.kept[i].UID)
		}
	}
	g.kept, g.drain, g.keptFor, g.until, p.state.drain = nil, gang.Kept{}, 0, 0, podgroup.Ref{}
	p.stirAll()
}

// drains says what is kept for a gang.
func drains(g *group, now time.Time) string {
	nodes := map[string]bool{}
	for i := range g.kept {
		nodes[g.kept[i].Node] = true
	}
	text := "; room for it is kept on " + plural(len(nodes), "node") + " as pods end there"
	if left := time.Unix(g.until, 0).Sub(now); g.until > 0 && left > 0 {
		text += ", the last within " + duration.HumanDuration(left)
	}
	return text
}
