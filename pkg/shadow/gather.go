package shadow

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
)

// company is the members of a gang, by index in the cast.
type company struct {
	gang    *Gang
	members []int
	running int // pinned members, which run already
}

// over reports whether all members of the gang have ended by a time: later ones of its name are another gang.
func (g *company) over(members []member, by time.Duration) bool {
	return !slices.ContainsFunc(g.members, func(i int) bool { return members[i].ended > by })
}

// stillThere counts the members that have not ended by a time.
func stillThere(members []*member, by time.Duration) (count int) {
	for _, m := range members {
		if m.ended > by {
			count++
		}
	}
	return count
}

// least returns the least number of members that may run.
func (g *company) least() int {
	if g.gang.MinCount > 0 {
		return max(1, g.gang.MinCount-g.running)
	}
	return len(g.members)
}

// companies returns the gangs of the pods that are not pinned, in the order of their first members. Members join within the time of
// Config.Gather; late counts the others.
func (l *Log) companies(members []member) (all []*company, late int) {
	by, pinned := map[string]*company{}, map[string][]*member{}
	for i := range members {
		m := &members[i]
		if m.Gang == nil {
			continue
		}
		g := by[m.Gang.Name]
		switch {
		case m.pinned: // these come first
			pinned[m.Gang.Name] = append(pinned[m.Gang.Name], m)
			continue
		case g == nil || g.over(members, m.created):
			g = &company{gang: m.Gang, running: stillThere(pinned[m.Gang.Name], m.created)}
			by[m.Gang.Name], all = g, append(all, g)
		case m.created-members[g.members[0]].created > l.cfg.Gather:
			late++
			continue
		}
		g.members = append(g.members, i)
	}
	return all, late
}

// gather makes the gangs of the cast: their members arrive when the last of them came, and run from the time at which enough of them
// ran until the last end. A gang leaves the cast where it had too few members, or is gone without having run.
func (l *Log) gather(c *cast) {
	all, late := l.companies(c.members)
	c.late = late
	gone := map[int]bool{}
	for at, g := range all {
		runs, known := g.runs(c.members)
		if len(g.members) < g.least() || !known {
			c.gangs++
			for _, i := range g.members {
				gone[i] = true
			}
			continue
		}
		arrive, priority := time.Duration(0), c.members[g.members[0]].Request.Priority
		for _, i := range g.members {
			arrive = max(arrive, c.members[i].arrive)
			priority = max(priority, c.members[i].Request.Priority)
		}
		spec := &sim.Gang{Name: fmt.Sprintf("%s#%d", g.gang.Name, at), MinCount: g.least(), Wishes: g.gang.Wishes, Losses: g.gang.Losses}
		for _, i := range g.members {
			m := &c.members[i]
			m.gang, m.arrive, m.runs = spec, arrive, runs
			m.fact = m.withPriority(priority)
		}
	}
	at := -1
	c.members = slices.DeleteFunc(c.members, func(member) bool { at++; return gone[at] })
}

// withPriority returns the fact with a priority: the members of a gang have the same one in a run.
func (f *fact) withPriority(p int32) *fact {
	if f.would().Priority == p {
		return f
	}
	r := *f.would()
	r.Priority = p
	same := *f
	same.Would = &r
	return &same
}

// whole returns when enough members of the gang ran in the other world, unset before.
func (g *company) whole(members []member) time.Duration {
	bound := make([]time.Duration, 0, len(g.members))
	for _, i := range g.members {
		if members[i].bound != unset {
			bound = append(bound, members[i].bound)
		}
	}
	if len(bound) < g.least() {
		return unset
	}
	slices.Sort(bound)
	return bound[g.least()-1]
}

// runs returns how long the gang runs, 0 where that is not known yet. It is false for a gang that is gone and never ran whole.
func (g *company) runs(members []member) (time.Duration, bool) {
	whole, last, open := g.whole(members), time.Duration(0), false
	for _, i := range g.members {
		m := &members[i]
		if m.bound == unset {
			open = open || whole == unset
			continue
		}
		if m.ended == unset {
			open = true
			continue
		}
		last = max(last, m.ended)
	}
	switch {
	case open:
		return 0, true
	case whole == unset:
		return 0, false
	}
	return max(1, last-whole), true
}
