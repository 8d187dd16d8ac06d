package resize

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/contest"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// Config has the rules of a State.
type Config struct {
	// Notice is the time between the notice to a member and its leaving.
	Notice time.Duration
	// Within is for how long members may be missing before their size goes back, first members before the number counts others, and the
	// work of an owner's controller before the number in its field goes back.
	Within time.Duration
}

// State is what is remembered of the size of one elastic gang.
type State struct {
	cfg     Config
	members part
	owner   part
	size    part
	record  part
	// full is when the gang last had all members of its number, or when this process first saw the gang: a member that is made anew needs
	// its time.
	full time.Time
	// uid is the owner that was read last, and writes what becomes of the numbers in its field.
	uid    string
	writes contest.Number
}

// New returns the State of a gang that this process sees for the first time. The Views show what an earlier process did.
func New(cfg Config, now time.Time) *State {
	return &State{cfg: cfg, members: following{}, owner: unread{}, size: free{}, record: recorded{}, full: now}
}

// Phases returns the phases of the members, the owner, the size and the record.
func (s *State) Phases() [4]Phase {
	return [4]Phase{s.members.phase(), s.owner.phase(), s.size.phase(), s.record.phase()}
}

// Resizable reports whether the number of the gang may change.
func (s *State) Resizable(v *View) bool {
	return !v.Fixed && !v.Paused && !v.Unread && s.Refusal() == nil
}

// Refusal returns why the owner's field is left alone, nil where it is not.
func (s *State) Refusal() *Refusal {
	switch o := s.owner.(type) {
	case *refused:
		return &o.refusal
	case *returning:
		return &o.refusal
	}
	return nil
}

// Offer returns the numbers from which package elastic may choose: one alone where the number must not change.
func (s *State) Offer(v *View) []int {
	if !s.Resizable(v) {
		return []int{v.Kept()}
	}
	if v.Pin > 0 {
		return []int{v.pinned()}
	}
	sizes := v.Possible
	if b, is := s.size.(*barred); is {
		for len(sizes) > 1 && sizes[len(sizes)-1] >= b.Size {
			sizes = sizes[:len(sizes)-1]
		}
	}
	return sizes
}

// Leave returns the members that run and leave by the target: the last change has not happened yet, and can be taken back for nothing.
func (s *State) Leave(v *View) []Member {
	if v.Number == 0 || !s.Resizable(v) {
		return nil
	}
	return v.Beyond(v.Size())
}

// Moved returns when the target got a number of which its status does not tell yet, and whether there is such a number.
func (s *State) Moved() (at time.Time, is bool) {
	m, is := s.record.(moved)
	return m.at, is
}

// Kept says why a member stays whose time has come, "" where none does.
func (s *State) Kept() string {
	if l, is := s.members.(*leaving); is {
		return l.kept
	}
	return ""
}

// Step takes one event and returns what to do.
func (s *State) Step(e Event, now time.Time) []Effect {
	m := &move{State: s, now: now}
	switch e := e.(type) {
	case Looked:
		m.looked(e.View)
	case Planned:
		m.planned(e.View, e.Target)
	case Numbered:
		m.record = moved{now}
	case Told:
		m.record = recorded{}
	case Due:
		m.due(e.View, e.Number)
	case Untold:
		if l, is := m.members.(*leaving); is {
			delete(l.at, e.ID)
		}
	case Written:
		m.written(&e)
	case NotTaken:
		m.notTaken(&e)
	case Evicted:
		m.evicted(e.Number, e.Kept)
	}
	return m.effects
}

// move is one Step.
type move struct {
	*State
	now     time.Time
	effects []Effect
}

func (m *move) do(effects ...Effect) { m.effects = append(m.effects, effects...) }

// looked takes in what has become of the last change.
func (m *move) looked(v *View) {
	if v.Paused {
		m.pause()
		return
	}
	if v.Number > 0 && v.Running >= v.Number {
		m.full = m.now
	}
	switch s := m.size.(type) {
	case *barred:
		switch {
		case v.Running >= s.Size:
			m.size = free{}
		case !m.now.Before(s.Until):
			m.size = &retrying{s.Size, s.times}
		}
	case *retrying:
		if v.Running >= s.size {
			m.size = free{}
		}
	}
	if !v.Unread {
		m.read(v)
	}
}

// planned gives the gang the number that package elastic wants, unless something speaks against it.
func (m *move) planned(v *View, t *elastic.Target) {
	set := Set{Number: v.Size(), Why: NotPlanned}
	switch {
	case t == nil:
	case v.Paused:
		set.Why = Held
	case !m.Resizable(v):
		set = Set{Number: v.Kept(), Why: NotResizable}
	case v.Pin > 0:
		set = Set{Number: v.pinned(), Why: Held}
	default:
		set = m.follow(v, t)
	}
	m.countFirst(v, &set)
	if o := v.Owner; o != nil && m.Resizable(v) && set.Number != v.Number && set.Number != o.Number {
		m.do(Ask{set.Number})
	}
	m.do(set)
}

// follow follows package elastic. Members that are missing come back, so a target that keeps the size that the gang has does not take their
// places; where they have been missing for too long, the size goes back to what runs.
func (m *move) follow(v *View, t *elastic.Target) Set {
	size, keeps, set := v.Size(), t.Why == elastic.Steady || t.Why == elastic.Settling, Set{Number: t.Workers, Why: AsPlanned}
	switch {
	case t.Err != nil:
		set.Number = size
	case v.Running == 0 && t.Why == elastic.Waits:
		set.Number = v.Sizes[0]
	case m.stuck(v) && (t.Workers >= size || keeps):
		set.Number, set.Why, set.Bar = elastic.SizeBelow(v.Sizes, v.Running), NoPlaces, m.bar(size, v.Lacks)
	case keeps:
		set.Number = max(size, t.Workers)
	}
	if b, is := m.size.(*barred); is && t.Why == elastic.AtMost && set.Why == AsPlanned {
		set.Why, set.Bar = SizeBarred, &b.Bar
	}
	return set
}

// stuck reports whether members of the number have had no places for too long. While an owner has yet to follow, it is the owner that is
// waited for: if it does nothing, the number goes back, and no smaller one is tried.
func (m *move) stuck(v *View) bool {
	if m.owner.phase() == Asked || v.Number == 0 || v.Lacks == "" || v.Running >= v.Number || v.Running < v.Sizes[0] {
		return false
	}
	return !v.Since.IsZero() && m.now.Sub(v.Since) > m.cfg.Within && m.now.Sub(m.full) > m.cfg.Within
}

// A size is not tried again for firstBar after it found no places, twice as long after each further time, and for mostBar at most. Without
// this the number would go up and down: package elastic sees room that the scheduler does not.
const (
	firstBar = 5 * time.Minute
	mostBar  = time.Hour
)

// bar keeps a size from being tried for a while.
func (m *move) bar(size int, why string) *Bar {
	times := 0
	switch s := m.size.(type) {
	case *barred:
		if s.Size == size {
			return &s.Bar // the target could not be written, and this is the same refusal
		}
		times = s.times
	case *retrying:
		times = s.times
	}
	lasts := firstBar
	for range times {
		lasts = min(2*lasts, mostBar)
	}
	b := &barred{Bar{size, why, m.now.Add(lasts)}, times + 1}
	m.size = b
	return &b.Bar
}

// countFirst makes the number so large that it counts as many members as must run, where the first ones have been gone for a while: they have
// ended for good, and the scheduler would hold the others back for ever. An owner makes them anew, and members that leave show that enough run.
func (m *move) countFirst(v *View, set *Set) {
	if m.members.phase() == Leaving || v.Paused {
		return
	}
	if v.Owner != nil || v.Reach <= set.Number {
		m.members = following{}
		return
	}
	gone, is := m.members.(firstGone)
	if !is {
		gone = firstGone{m.now}
		m.members = gone
	}
	if m.now.Sub(gone.since) <= m.cfg.Within {
		return
	}
	for _, size := range v.Sizes {
		if size >= v.Reach {
			set.Number, set.FirstGone = size, true
			return
		}
	}
}
