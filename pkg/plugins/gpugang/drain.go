package gpugang

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// drainFor has room kept for a gang that waits for room and whose turn it is, and returns what to add to its refusal. Only one
// gang drains at a time: two could each keep what the other needs. The caller holds the mutex.
func (p *Plugin) drainFor(g *group, t *task, r *gang.Refusal) string {
	if g.room != nil || g.short.IsZero() || p.args.Drain == config.DrainDisabled {
		return ""
	}
	now := p.now()
	g.looked = now
	if p.state.drain == g.Ref && !p.keeps(g, t) {
		p.endDrain(g)
	}
	if now.Sub(g.short) < p.args.DrainAfter.Duration {
		return ""
	}
	switch head := p.state.head(now); {
	case head == nil: // the last drain of this gang came to nothing
		return ""
	case head != g:
		return "; gang " + head.String() + " waits before it"
	}
	if p.state.drain == g.Ref {
		if why := p.inVain(g, t); why != "" {
			p.dryUp(g, now)
			return "; " + why
		}
		return drains(g, now)
	}
	if !r.PassedOver(g.short.Unix(), p.startOf) {
		return "" // ordinary turnover may still make the room
	}
	p.endDrain(p.state.gangs[p.state.drain])
	plan, err := gang.Drain(t.cluster, t.group, t.config)
	if err != nil || plan.Refused != nil {
		p.dryUp(g, now)
		return ""
	}
	p.state.drain, g.until, g.drained, g.keptFor = g.Ref, plan.Until, now, t.lacking()
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
	return drains(g, now)
}

// Drains reports whether room is kept for a gang while its present owners end.
func (p *Plugin) Drains(ref podgroup.Ref) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.drain == ref
}

// inVain says why a drain is given up before its timeout, "" where it is not: its devices are free and the gang does not fit
// all the same, for want of CPU or memory.
func (p *Plugin) inVain(g *group, t *task) string {
	for i := range g.kept {
		if !free(t.ledger(g.kept[i].Node), &g.kept[i]) {
			return ""
		}
	}
	return "the room that was kept for it is free, and its nodes lack something else"
}

// free reports whether the devices of a hold have its room free for its pod.
func free(n *vgpu.Node, h *vgpu.Hold) bool {
	if n == nil {
		return false
	}
	fits := n.Clone()
	fits.Release(h.UID)
	return fits.Add(h.Assignment) == nil
}

// dryUp ends the drain of a gang that came to nothing, and lets the next one drain: the gang itself waits, each time twice as
// long. The caller holds the mutex.
func (p *Plugin) dryUp(g *group, now time.Time) {
	p.endDrain(g)
	g.dry = now.Add(p.again(g.dryTimes))
	g.dryTimes++
	p.stirAll()
}

// again returns the pause after so many drains, or preemptions, that came to nothing and one more.
func (p *Plugin) again(times int) time.Duration {
	return max(step, p.args.DrainAfter.Duration) << min(times, maxDoublings)
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
	g.kept, g.keptFor, g.until, p.state.drain = nil, 0, 0, podgroup.Ref{}
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
