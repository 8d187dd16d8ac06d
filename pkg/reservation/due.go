package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
)

// NextDue returns for which gang Ticked does something first, and when, where nothing happens until then; false where it never
// does. A time in the past means at once. The answer may be too early, never too late: another gang may have its turn then.
// NextDue leaves out gangs of which something is missing or wrong, the end of victims, which State does not know, and repeated
// activations. A caller that steps Ticked at these times alone need not step it each second.
func (s *State) NextDue(now time.Time) (ref Ref, at time.Time, some bool) {
	turn := s.turn(now)
	for _, g := range s.gangs {
		due, is := s.dueAt(g, turn, now)
		if is && (!some || due.Before(at) || due.Equal(at) && g.Compare(ref) < 0) {
			ref, at, some = g.Ref, due, true
		}
	}
	return ref, at, some
}

// Turn returns the gang for which State seeks room if the scheduler tries and refuses it now, and whether there is one.
func (s *State) Turn(now time.Time) (Ref, bool) {
	if g := s.turn(now); g != nil {
		return g.Ref, true
	}
	return Ref{}, false
}

func (s *State) turn(now time.Time) *group {
	if s.cfg.Drains == gang.NoDrains {
		return nil
	}
	return s.next(now)
}

// dueAt returns when Ticked does something for one gang. turn is the gang whose turn it is.
func (s *State) dueAt(g, turn *group, now time.Time) (at time.Time, some bool) {
	earliest := func(t time.Time, is bool) {
		if is && (!some || t.Before(at)) {
			at, some = t, true
		}
	}
	earliest(s.placesEnd(g))
	earliest(s.roomEnds(g))
	for _, r := range g.repairs {
		earliest(r.At, !r.At.IsZero())
	}
	if !g.retry.IsZero() { // until then Ticked ignores the times below
		earliest(g.retry, true)
		return at, some
	}
	earliest(g.unlimit, !g.unlimit.IsZero())
	earliest(g.seekVictimsAt, g.retriesToSeek)
	earliest(s.yieldedAt(g))
	earliest(s.looksAt(g, turn, now))
	return at, some
}

// moment is the time after which a deadline has passed.
const moment = time.Nanosecond

// placesEnd returns when the members of a plan have taken too long to come, or the scheduler to bind them.
func (s *State) placesEnd(g *group) (at time.Time, some bool) {
	switch p := g.phase.(type) {
	case *planned:
		return p.made.Add(s.cfg.Deadline + moment), true
	case *binding:
		return p.since.Add(s.cfg.Deadline + moment), true
	}
	return at, false
}

// roomEnds returns when the pods in the room of a gang have taken too long to end.
func (s *State) roomEnds(g *group) (at time.Time, some bool) {
	switch n := g.need.(type) {
	case *preempting:
		return n.Until.Add(moment), true
	case *reserving:
		return n.since.Add(s.cfg.Timeout), true
	}
	return at, false
}

// looksAt returns when a gang may next have its turn to seek room. If State has activated the gang for that already, looksAt
// returns when the turn ends.
func (s *State) looksAt(g, turn *group, now time.Time) (at time.Time, some bool) {
	r, holder := g.refused(), s.gangs[s.reserving]
	switch {
	case s.cfg.Drains == gang.NoDrains, r == nil, r.wait == nil, g.preempting() != nil:
		return at, false
	case holder != nil && g.priority <= holder.priority:
		return at, false
	case r.wait.look.After(now):
		return r.wait.look, true
	case g != turn:
		return at, false
	case r.wait.woken.IsZero():
		return r.wait.look, true
	}
	return r.wait.woken.Add(lookPause), true
}
