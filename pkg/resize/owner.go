package resize

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/contest"
)

// Again is how long an owner is left alone that did not follow. The obstacle may have ended, a quota for example.
const Again = 30 * time.Minute

// backAgain is how long after a refusal the number that has to go back is tried again. A longer time leaves the owner with a number that it
// does not follow, a shorter one makes more requests that are refused.
const backAgain = time.Minute

// read takes in what has become of the number in the owner's field.
func (m *move) read(v *View) {
	if v.Number == 0 { // whoever deletes a target wants another try
		m.owner, m.writes = unasked{}, contest.Number{}
	}
	o := v.Owner
	if o == nil {
		if m.owner.phase() == Unread {
			m.owner = unasked{}
		}
		return
	}
	if o.UID != m.uid { // a refusal is of one object
		if m.uid != "" {
			m.owner, m.writes = unasked{}, contest.Number{}
		}
		m.uid = o.UID
	}
	contested := m.writes.Read(o.Number, 0, m.now)
	m.owner = m.ownerNow(v)
	if contested && m.owner.phase() == Unasked {
		n := m.writes.Undone()
		r := Refusal{Kind: OtherWriter, Undone: n}
		m.owner = &refused{r}
		m.do(LeaveOwner{r})
	}
}

// ownerNow returns the phase of an owner that was read.
func (m *move) ownerNow(v *View) part {
	o := v.Owner
	switch s := m.owner.(type) {
	case unread:
		return m.restart(v)
	case *asked:
		switch {
		case s.answered(v):
			return unasked{}
		case m.now.Sub(s.at) >= m.cfg.Within:
			return &returning{asked: *s, refusal: m.notFollowed(s, o)}
		}
	case *returning:
		if s.answered(v) {
			return unasked{}
		}
		if s.refusal.Generation != o.Generation { // what the API server refused, it may take of an object that has changed
			s.refusal.Generation, s.again = o.Generation, time.Time{}
		}
	case *refused:
		if !s.refusal.holds(o, m.now) {
			return unasked{}
		}
	}
	return m.owner
}

// restart returns the phase of an owner that an earlier process may have asked. After a change to more members nothing needs to be found: the
// target says that members are missing, and goes back to what runs.
func (m *move) restart(v *View) part {
	o := v.Owner
	if v.Before != nil && v.Before.Kind == OtherWriter { // it counts although its time is over: the next change that is undone is one more
		m.writes.Resume(v.Before.Until, 0)
	}
	switch {
	case v.Before != nil && v.Before.holds(o, m.now):
		if v.Before.Kind == NotFollowed && v.Number == o.Number && v.surplus(o.Number) > 0 { // the number has not gone back
			a := m.ask(v, v.counts(), o.Number)
			a.at = m.now.Add(-m.cfg.Within)
			return &returning{asked: *a, refusal: m.notFollowed(a, o)}
		}
		return &refused{*v.Before}
	case v.Number == o.Number && v.surplus(o.Number) > 0:
		return m.ask(v, v.counts(), o.Number)
	}
	return unasked{}
}

// ask returns the phase of an owner whose field was written just now, or was found written.
func (m *move) ask(v *View, from, to int) *asked {
	a := &asked{from: from, to: to, at: m.now, old: map[string]bool{}, surplus: v.surplus(to)}
	for _, member := range v.Members {
		if member.Within > from {
			a.old[member.ID] = true
		}
	}
	return a
}

// answered reports whether somebody has written another number, or the owner's controller has done a part of the change at least: it has
// made a member, or has begun to delete one. An owner that is slow has done a part.
func (a *asked) answered(v *View) bool {
	switch {
	case v.Owner.Number != a.to:
		return true
	case a.to <= a.from:
		return a.surplus == 0 || v.surplus(a.to) < a.surplus
	}
	for _, member := range v.Members {
		if member.Within > a.from && !a.old[member.ID] {
			return true
		}
	}
	return false
}

func (m *move) notFollowed(a *asked, o *Owner) Refusal {
	return Refusal{
		Kind: NotFollowed, Undone: contest.Undone{From: a.from, To: a.to, Until: m.now.Add(Again)}, After: m.now.Sub(a.at), Generation: o.Generation,
	}
}

// written goes on after the owner's field was written.
func (m *move) written(e *Written) {
	m.writes.Wrote(e.Owner.Number, e.Number, m.now)
	if r, is := m.owner.(*returning); is {
		r.refusal.Generation, r.refusal.Until, r.refusal.Stays = e.Generation, m.now.Add(Again), ""
		m.owner = &refused{r.refusal}
		return
	}
	m.owner = m.ask(e.View, e.Owner.Number, e.Number)
}

// notTaken goes on after the API server refused a number. One that has to go back is tried again: nobody else would put it back.
func (m *move) notTaken(e *NotTaken) {
	if r, is := m.owner.(*returning); is {
		r.refusal.Stays, r.again = e.Refusal.Text, m.now.Add(backAgain)
	} else {
		m.owner = &refused{e.Refusal}
	}
	m.do(Set{Number: e.Kept(), Why: NotResizable})
}
