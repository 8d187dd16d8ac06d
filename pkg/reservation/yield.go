package reservation

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
)

// A gang that runs and lacks members keeps the GPUs of the others idle. Two such gangs may each hold what the other needs, after a
// drain of nodes for example, and no event would ever end that. So one of them gives way: once both have waited for a deadline, the one
// that has waited for longer may evict the other one, although its priority is not higher. After another deadline it is the other way
// round, for where that did not help. The evicted gang has no place any more and the other one runs whole, so nothing swings.

// Yields returns when a gang gives way to another one of its priority, zero for never. Both run and lack members. The other one waits
// for room; for the gang itself the cluster may be too small.
func (s *State) Yields(ref, to Ref) time.Time { return s.yields(s.gangs[ref], s.gangs[to]) }

// YieldsTo returns the first gang to which a gang gives way, and when; zero where there is none.
func (s *State) YieldsTo(ref Ref) (to Ref, at time.Time) {
	if !s.gangs[ref].isBroken() {
		return to, at
	}
	for _, other := range s.refs() {
		when := s.Yields(ref, other)
		if !when.IsZero() && (at.IsZero() || when.Before(at)) {
			to, at = other, when
		}
	}
	return to, at
}

// Yielding returns the gangs that give way to a gang now, in order.
func (s *State) Yielding(to Ref, now time.Time) (refs []Ref) {
	if g := s.gangs[to]; g.waitsForRoom() {
		for _, ref := range s.refs() {
			if at := s.Yields(ref, to); !at.IsZero() && !now.Before(at) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

func (s *State) yields(g, to *group) time.Time {
	if g == to || !g.isBroken() || !to.waitsForRoom() || g.priority != to.priority || to.never {
		return time.Time{}
	}
	at := to.refused().lacks
	if own := g.refused().lacks; own.After(at) {
		at = own
	}
	if tooSmall := g.refused().Reason == gang.NeverFits; !tooSmall && !g.never && compareBroken(g, to) < 0 {
		at = at.Add(s.cfg.Deadline)
	}
	return at.Add(s.cfg.Deadline)
}

// Broken returns the running gangs that lack members for which there was no room, in the order in which they wait. If the gang
// before is one of them, Broken returns those that wait before it.
func (s *State) Broken(before Ref) (refs []Ref) {
	var list []*group
	own := s.gangs[before]
	for _, g := range s.gangs {
		if g != own && g.isBroken() && (!own.isBroken() || compareBroken(g, own) < 0) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, compareBroken)
	for _, g := range list {
		refs = append(refs, g.Ref)
	}
	return refs
}

// isBroken reports whether a gang runs and lacks members for which the cluster had no room, and nothing makes room for it.
func (g *group) isBroken() bool {
	if g == nil || !g.started() || g.preempting() != nil {
		return false
	}
	r := g.refused()
	return r != nil && r.Reason != Malformed && r.Lacking > 0
}

// waitsForRoom reports whether room in the cluster as it is would help the gang.
func (g *group) waitsForRoom() bool { return g.isBroken() && g.refused().lacksRoom() }

// compareBroken orders gangs that lack members: the highest priority first, then the one that lacks them for longer, then by name.
func compareBroken(a, b *group) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.refused().lacks.Compare(b.refused().lacks), a.Compare(b.Ref))
}

// mend notes that a running gang lacks no members any more although no plan says so: fewer must run, or their binds came late.
func (m *move) mend(g *group, f *Facts) {
	if !g.isBroken() {
		return
	}
	if now := m.AfterStart(*f); now.Problem == nil && g.lacking(&now) == 0 {
		r := g.refused()
		r.Lacking, r.wait = 0, nil
	}
}

// yieldedAt returns when the next gang gives way to a gang that has not been tried since, and whether one does.
func (s *State) yieldedAt(g *group) (at time.Time, some bool) {
	if !g.waitsForRoom() || g.refused().wait == nil {
		return at, false
	}
	for _, other := range s.gangs {
		when := s.yields(other, g)
		if !when.IsZero() && when.After(g.refused().wait.asked) && (!some || when.Before(at)) {
			at, some = when, true
		}
	}
	return at, some
}
