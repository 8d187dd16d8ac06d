package notebook

import (
	"fmt"
	"time"
)

// State is what a notebook is to its owner.
type State string

// The states. A notebook of which nothing else is known yet is Waking.
const (
	// Active: something works.
	Active State = "Active"
	// Idle: nothing works, and the end is further away than the notice.
	Idle State = "Idle"
	// Warned: it will be parked, unless something works before.
	Warned State = "Warned"
	// Parked: the workload asks for no pod.
	Parked State = "Parked"
	// Waking: the workload asks for a pod that does not serve yet.
	Waking State = "Waking"
)

// States returns all states.
func States() []State { return []State{Active, Idle, Warned, Parked, Waking} }

// Config says when a notebook is parked.
type Config struct {
	// Limit is how long nothing works before a notebook is parked.
	Limit time.Duration
	// Notice is the time from the warning to the end, above 0 and at most the limit.
	Notice time.Duration
	// Step is the most that one observation adds to the idle time. Twice the time between two observations lets a late one count; more makes
	// a clock that jumps count for more.
	Step time.Duration
}

func (c *Config) check() error {
	switch {
	case c.Notice <= 0 || c.Notice > c.Limit:
		return fmt.Errorf("the notice is %v, legal is above 0s, up to the limit of %v", c.Notice, c.Limit)
	case c.Step <= 0:
		return fmt.Errorf("the step is %v, legal is above 0s", c.Step)
	}
	return nil
}

// Memory is what Decide knows of a notebook from one observation to the next. The zero value knows nothing.
type Memory struct {
	State State
	// at is the time of the last observation, and seen the last one that told something.
	at   time.Time
	seen Observation
	// idle is for how long nothing has worked, and served how much of the notice is over.
	idle, served time.Duration
}

// Plan is what to do with a notebook.
type Plan struct {
	State State
	// Warn says that the owner is to be warned: the notice begins.
	Warn bool
	// Park says that the workload is to ask for no pod. The plan says so again until an observation shows it.
	Park bool
	// IdleFor is for how long nothing has worked, at most the limit. ParksIn is after which time an Idle or Warned notebook is parked if nothing
	// works; it is 0 in the other states, and while the notebook is unreachable.
	IdleFor, ParksIn time.Duration
	// Note is what the caller is to keep of the pod outside of its process, and to give back with the next observations. The zero value takes
	// away what is there.
	Note Note
}

// Decide returns what to do with a notebook that was observed now, and what to remember of it. It changes nothing. The error is of a
// configuration or an observation that is not legal.
//
// Example: with a limit of 60 minutes and a notice of 10, a notebook is warned when nothing has worked for 50 minutes. It is parked 10 minutes
// later at the earliest, also where the first observation comes with a note that says that it is idle for a day.
func Decide(m Memory, o Observation, now time.Time, c Config) (Plan, Memory, error) {
	if err := c.check(); err != nil {
		return Plan{}, m, err
	}
	if err := o.check(); err != nil {
		return Plan{}, m, err
	}
	if o.Phase == PhaseOff {
		return Plan{State: Parked}, Memory{State: Parked, at: now}, nil
	}
	passed := m.pass(&o, now, &c)
	fresh, warn := m.seen.Phase == PhaseUnreachable, false
	if o.Phase != PhaseUnreachable { // else it is unknown what works, and the state stays
		warn = m.count(&o, now, passed, &c)
	}
	p := Plan{State: m.State, Warn: warn, IdleFor: m.idle}
	if o.Phase != PhaseUnreachable && (m.State == Idle || m.State == Warned) {
		p.ParksIn = max(c.Limit-m.idle, c.Notice-m.served)
		p.Park = p.ParksIn <= 0 // only when the notice is over
		p.ParksIn = max(0, p.ParksIn)
	}
	p.Note = m.note(&o, p.ParksIn, fresh, &c)
	return p, m, nil
}

// pass returns the time that counts since the last observation. For a pod that the memory does not know it is none: there the memory
// becomes what the note tells, as if the pod had been unreachable until now.
func (m *Memory) pass(o *Observation, now time.Time, c *Config) (passed time.Duration) {
	if m.seen.Phase == "" || m.seen.Pod != o.Pod {
		*m = Memory{State: Waking, seen: Observation{Phase: PhaseUnreachable, Pod: o.Pod}, idle: o.Note.recall(now, c)}
	} else {
		passed = min(max(0, now.Sub(m.at)), c.Step)
	}
	m.at = now
	return passed
}

// count takes in an observation that tells what works, and reports whether the notice begins.
func (m *Memory) count(o *Observation, now time.Time, passed time.Duration, c *Config) (warn bool) {
	idle := m.idleAt(o, now, passed)
	if o.Busy {
		idle = 0
	}
	idle = min(idle, c.Limit)
	before := *m
	m.seen, m.idle, m.served = *o, idle, 0
	switch {
	case o.Busy:
		m.State = Active
	case idle >= c.Limit-c.Notice:
		m.State = Warned
		if before.State != Warned || !before.seen.same(o) {
			return true
		}
		m.served = min(before.served+passed, c.Notice)
	case o.Phase == PhaseStarting:
		m.State = Waking
	default:
		m.State = Idle
	}
	return false
}

// idleAt returns for how long nothing has worked. No more time can have come than the one that passed, whatever the clocks say. The notebook's
// own times cannot make it more either: they tell nothing of a program that a kernel started, and which used the GPU after them.
func (m *Memory) idleAt(o *Observation, now time.Time, passed time.Duration) time.Duration {
	switch {
	case m.seen.same(o):
		return m.idle + passed
	case o.Phase == PhaseStarting:
		return 0
	case m.seen.Phase == PhaseUnreachable: // the pod is new to the memory, which has what the note told
		passed += m.idle
	}
	return min(max(0, now.Sub(o.Activity)), passed)
}

// same reports whether nothing has worked between two observations of one pod.
func (o *Observation) same(other *Observation) bool {
	return o.Phase == other.Phase && o.Pod == other.Pod && o.Activity.Equal(other.Activity)
}
