package notebook

import "time"

// Note is what a caller keeps of an idle pod outside of its own process, and shows people. The zero value says nothing. A Decide whose Memory
// does not know the pod, since the process is a new one, continues from the note.
type Note struct {
	// IdleSince is since when nothing works, and ParksAt when the notebook is parked if nothing works before.
	IdleSince, ParksAt time.Time
}

// noteFrom is the part of the limit from which on a pod has a note. A smaller part writes a note at each short pause of the user; a larger one loses
// more idle time when the caller restarts.
const noteFrom = 4

// recall returns for how long nothing has worked in a pod that the memory does not know, at least: 0 where the note does not say it.
//
// A note is right within a step (see note), and the look after it may be a step late. So two steps are taken off: the answer is never more than
// what the memory of the writer would add up to. A note whose end passed more than two steps ago is worth nothing, since a writer that had
// looked all the time would have parked the notebook or written another note.
//
// Weak: a longer time in which no process looks, or by which the clock jumps meanwhile, counts as idle as long as the end is not over.
//
// Example: with steps of 1m, a note of 9:00 is worth 43 minutes at 9:45.
func (n Note) recall(now time.Time, c *Config) time.Duration {
	if n.IdleSince.IsZero() || now.Sub(n.ParksAt) > 2*c.Step {
		return 0
	}
	return min(max(0, now.Sub(n.IdleSince)-2*c.Step), c.Limit)
}

// note returns what to keep of the observation that was decided last. A note that is right within a step stays as it is. While the notebook is
// unreachable nothing counts, so that its note becomes wrong, and goes. A pod that was new to the memory and idle gets a note at once: else a
// caller that restarts often would begin anew for ever.
func (m *Memory) note(o *Observation, parksIn time.Duration, fresh bool, c *Config) Note {
	want := Note{IdleSince: m.at.Add(-m.idle), ParksAt: m.at.Add(parksIn)}
	right := near(o.Note.IdleSince, want.IdleSince, c.Step)
	switch {
	case o.Phase == PhaseUnreachable && right:
		return o.Note
	case o.Phase == PhaseUnreachable:
		return Note{}
	case m.State == Warned, m.State == Idle && (fresh || right || m.idle >= c.Limit/noteFrom):
		if right {
			want.IdleSince = o.Note.IdleSince
		}
		if near(o.Note.ParksAt, want.ParksAt, c.Step) {
			want.ParksAt = o.Note.ParksAt
		}
		return want
	}
	return Note{}
}

func near(a, b time.Time, within time.Duration) bool { return a.Sub(b).Abs() <= within }
