package reservation

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
)

// NextDue returns for which gang Ticked does something first, and when, where nothing happens until then; false where it never does.
// A time in the past says that it does so at once. The answer may be too early, never too late: another gang may have its turn then.
// It leaves out gangs of which something is missing or wrong, and victims that are gone, which State does not know, and that Ticked
// says again that a gang is to be tried. A caller that steps Ticked at these times alone need not step it each second.
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

// Turn returns the gang for which room is sought now if it is tried and refused, and whether there is one.
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
	if !g.retry.IsZero() { // what else it waits for is looked at after that
		earliest(g.retry, true)
		return at, some
	}
	earliest(g.unlimit, !g.unlimit.IsZero())
	earliest(g.seekVictimsAt, g.retriesToSeek)
	earliest(s.looksAt(g, turn, now))
	return at, some
}

// moment is the time after which a deadline has passed.
const moment = time.Nanosecond

// placesEnd returns when the members of a plan have taken too long to come, or to be bound.
func (s *State) placesEnd(g *group) (at time.Time, some bool) {
	switch p := g.phase.(type) {
	case *planned:
		return p.made.Add(s.cfg.Deadline + moment), true
	case *binding:
		return p.since.Add(s.cfg.Deadline + moment), true
	}
	return at, false
}

// roomEnds returns when the pods have taken too long for whose end room is kept.
func (s *State) roomEnds(g *group) (at time.Time, some bool) {
	switch n := g.need.(type) {
	case *preempting:
		return n.Until.Add(moment), true
	case *reserving:
		return n.since.Add(s.cfg.Timeout), true
	}
	return at, false
}

// looksAt returns when it is seen whether room is kept for a gang: when its time has come and it is its turn, and where it could not
// be tried then, after the pause in which it might have been.
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
