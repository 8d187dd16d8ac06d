package notebook

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// nine is the time at which the tables begin.
var nine = time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)

// hour is a configuration with round numbers.
var hour = Config{Limit: time.Hour, Notice: 10 * time.Minute, Step: 2 * time.Minute}

func quiet(pod string, since time.Time) Observation {
	return Observation{Phase: PhaseServing, Pod: pod, Activity: since}
}

// found is a quiet pod whose note is worth the time since then at nine.
func found(pod string, since time.Time) Observation {
	o := quiet(pod, since)
	o.Note = Note{IdleSince: since.Add(-2 * hour.Step), ParksAt: nine}
	return o
}

func busy(pod string, since time.Time) Observation {
	return Observation{Phase: PhaseServing, Pod: pod, Busy: true, Activity: since}
}

// look is an observation, after a time by the clock of the caller.
type look struct {
	after time.Duration
	o     Observation
	// want is the state, with what is to be done: "Warned warn 50m0s, parks in 10m0s".
	want string
}

// say writes a plan.
func say(p *Plan) string {
	words := []string{string(p.State)}
	if p.Warn {
		words = append(words, "warn")
	}
	if p.Park {
		words = append(words, "park")
	}
	return fmt.Sprintf("%s %v, parks in %v", strings.Join(words, " "), p.IdleFor, p.ParksIn)
}

func TestDecide(t *testing.T) {
	const minute = time.Minute
	off, starting := Observation{Phase: PhaseOff}, Observation{Phase: PhaseStarting, Pod: "p"}
	lost := Observation{Phase: PhaseUnreachable, Pod: "p"}
	for name, looks := range map[string][]look{
		"a busy kernel whose cell has said nothing for a day": {
			{0, busy("p", nine.Add(-24*time.Hour)), "Active 0s, parks in 0s"},
			{minute, busy("p", nine.Add(-24*time.Hour)), "Active 0s, parks in 0s"},
			// The cell has ended. Its end is an activity, but telemetry alone may have told of the work.
			{minute, quiet("p", nine.Add(-24*time.Hour)), "Idle 1m0s, parks in 59m0s"},
		},
		"idle, warned and parked": {
			{0, found("p", nine.Add(-48*minute)), "Idle 48m0s, parks in 12m0s"},
			{minute, quiet("p", nine.Add(-48*minute)), "Idle 49m0s, parks in 11m0s"},
			{minute, quiet("p", nine.Add(-48*minute)), "Warned warn 50m0s, parks in 10m0s"},
			{2 * minute, quiet("p", nine.Add(-48*minute)), "Warned 52m0s, parks in 8m0s"},
			{2 * minute, quiet("p", nine.Add(-48*minute)), "Warned 54m0s, parks in 6m0s"},
			{2 * minute, quiet("p", nine.Add(-48*minute)), "Warned 56m0s, parks in 4m0s"},
			{2 * minute, quiet("p", nine.Add(-48*minute)), "Warned 58m0s, parks in 2m0s"},
			{2 * minute, quiet("p", nine.Add(-48*minute)), "Warned park 1h0m0s, parks in 0s"},
			{minute, quiet("p", nine.Add(-48*minute)), "Warned park 1h0m0s, parks in 0s"},
			{minute, off, "Parked 0s, parks in 0s"},
		},
		"the first look finds a notebook that has been idle for a day": {
			{0, found("p", nine.Add(-24*time.Hour)), "Warned warn 1h0m0s, parks in 10m0s"},
			{2 * minute, quiet("p", nine.Add(-24*time.Hour)), "Warned 1h0m0s, parks in 8m0s"},
		},
		"the first look finds an old kernel and no note": {
			{0, quiet("p", nine.Add(-24*time.Hour)), "Idle 0s, parks in 1h0m0s"},
			{minute, quiet("p", nine.Add(-24*time.Hour)), "Idle 1m0s, parks in 59m0s"},
		},
		"the first look gets no answer, and the note counts": {
			{0, Observation{Phase: PhaseUnreachable, Pod: "p", Note: Note{nine.Add(-34 * minute), nine}}, "Waking 30m0s, parks in 0s"},
			{time.Hour, lost, "Waking 30m0s, parks in 0s"},
			{minute, quiet("p", nine.Add(-time.Hour)), "Idle 31m0s, parks in 29m0s"},
		},
		"a kernel worked after the note was written": {
			{0, Observation{Phase: PhaseServing, Pod: "p", Activity: nine.Add(-7 * minute), Note: Note{nine.Add(-34 * minute), nine}}, "Idle 7m0s, parks in 53m0s"},
		},
		"a pod is new after its workload asked for none": {
			{0, off, "Parked 0s, parks in 0s"},
			{minute, quiet("p", nine.Add(-24*time.Hour)), "Idle 0s, parks in 1h0m0s"},
		},
		"a short cell between two looks": {
			{0, found("p", nine.Add(-55*minute)), "Warned warn 55m0s, parks in 10m0s"},
			{2 * minute, quiet("p", nine.Add(minute)), "Idle 1m0s, parks in 59m0s"},
		},
		"the last kernel is shut down in a pod that has been ready for a day": {
			{0, found("p", nine.Add(-minute)), "Idle 1m0s, parks in 59m0s"},
			{minute, quiet("p", nine.Add(-24*time.Hour)), "Idle 1m0s, parks in 59m0s"},
		},
		"the clock goes a year forward": {
			{0, quiet("p", nine), "Idle 0s, parks in 1h0m0s"},
			{365 * 24 * time.Hour, quiet("p", nine), "Idle 2m0s, parks in 58m0s"},
		},
		"the clock goes back": {
			{0, found("p", nine.Add(-30*minute)), "Idle 30m0s, parks in 30m0s"},
			{-2 * time.Hour, quiet("p", nine.Add(-30*minute)), "Idle 30m0s, parks in 30m0s"},
			{minute, quiet("p", nine.Add(-30*minute)), "Idle 31m0s, parks in 29m0s"},
		},
		"the notebook's clock is ahead": {
			{0, quiet("p", nine.Add(time.Hour)), "Idle 0s, parks in 1h0m0s"},
			{minute, quiet("p", nine.Add(time.Hour)), "Idle 1m0s, parks in 59m0s"},
		},
		"a warned notebook does not answer": {
			{0, found("p", nine.Add(-time.Hour)), "Warned warn 1h0m0s, parks in 10m0s"},
			{2 * minute, quiet("p", nine.Add(-time.Hour)), "Warned 1h0m0s, parks in 8m0s"},
			{time.Hour, lost, "Warned 1h0m0s, parks in 0s"},
			{time.Hour, lost, "Warned 1h0m0s, parks in 0s"},
			{2 * minute, quiet("p", nine.Add(-time.Hour)), "Warned 1h0m0s, parks in 6m0s"},
		},
		"woken, and lost before it served": {
			{0, off, "Parked 0s, parks in 0s"},
			{minute, starting, "Waking 0s, parks in 0s"},
			{minute, lost, "Waking 0s, parks in 0s"},
			{minute, quiet("p", nine.Add(150*time.Second)), "Idle 30s, parks in 59m30s"},
		},
		"another pod has another idle time": {
			{0, found("p", nine.Add(-55*minute)), "Warned warn 55m0s, parks in 10m0s"},
			{minute, Observation{Phase: PhaseUnreachable, Pod: "q"}, "Waking 0s, parks in 0s"},
			{minute, quiet("q", nine.Add(minute)), "Idle 1m0s, parks in 59m0s"},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, looks) })
	}
}

func play(t *testing.T, looks []look) {
	t.Helper()
	m, now := Memory{}, nine
	for i, l := range looks {
		now = now.Add(l.after)
		p, next, err := Decide(m, l.o, now, hour)
		must.OK(t, err)
		if got := say(&p); got != l.want {
			t.Errorf("look %d: %q, want %q", i, got, l.want)
		}
		m = next
	}
}

func TestServing(t *testing.T) {
	at := func(minutes int) time.Time { return nine.Add(time.Duration(minutes) * time.Minute) }
	for name, test := range map[string]struct {
		s    Server
		want Observation
	}{
		"idle kernels and a terminal": {
			Server{Kernels: []Kernel{{"idle", at(0)}, {"idle", at(30)}}, Terminals: []time.Time{at(10)}, ReadySince: at(50)}, quiet("p", at(30)),
		},
		"a terminal that works":           {Server{Kernels: []Kernel{{"idle", at(0)}}, Terminals: []time.Time{at(40)}}, quiet("p", at(40))},
		"a terminal and no kernel":        {Server{Terminals: []time.Time{at(7)}, ReadySince: at(50)}, quiet("p", at(7))},
		"one busy kernel of two":          {Server{Kernels: []Kernel{{"busy", at(0)}, {"idle", at(9)}}}, busy("p", at(9))},
		"a kernel that no client joined":  {Server{Kernels: []Kernel{{"starting", at(3)}}}, quiet("p", at(3))},
		"nothing":                         {Server{ReadySince: at(5)}, quiet("p", at(5))},
		"an idle kernel and a busy GPU":   {Server{Kernels: []Kernel{{"idle", at(1)}}, GPU: GPUBusy}, busy("p", at(1))},
		"an idle kernel and a quiet GPU":  {Server{Kernels: []Kernel{{"idle", at(1)}}, GPU: GPUQuiet}, quiet("p", at(1))},
		"a GPU of which nothing is known": {Server{Kernels: []Kernel{{"idle", at(1)}}, GPU: GPUUnknown}, quiet("p", at(1))},
	} {
		if diff := cmp.Diff(test.want, Serving("p", &test.s)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestRefusals(t *testing.T) {
	for want, test := range map[string]struct {
		c Config
		o Observation
	}{
		"the notice is 0s, legal is above 0s, up to the limit of 1h0m0s":   {Config{Limit: time.Hour, Step: 1}, Observation{Phase: PhaseOff}},
		"the notice is 2h0m0s, legal is above 0s, up to the limit of 1h0m": {Config{Limit: time.Hour, Notice: 2 * time.Hour, Step: 1}, Observation{Phase: PhaseOff}},
		"the step is 0s, legal is above 0s":                                {Config{Limit: time.Hour, Notice: 1}, Observation{Phase: PhaseOff}},
		`observe pod "p": the phase is ""`:                                 {hour, Observation{Pod: "p"}},
		`observe pod "p": it is busy and Unreachable`:                      {hour, Observation{Phase: PhaseUnreachable, Pod: "p", Busy: true}},
	} {
		if _, m, err := Decide(Memory{}, test.o, nine, test.c); err == nil || !strings.HasPrefix(err.Error(), want) || m != (Memory{}) {
			t.Errorf("%v, want %s; memory %+v", err, want, m)
		}
	}
}

// A note counts from two steps after its beginning on, up to two steps after its end.
func TestRecall(t *testing.T) {
	const minute = time.Minute
	for name, test := range map[string]struct {
		n    Note
		want time.Duration
	}{
		"no note":                           {Note{}, 0},
		"no beginning":                      {Note{ParksAt: nine}, 0},
		"no end":                            {Note{IdleSince: nine.Add(-20 * minute)}, 0},
		"44 minutes less two steps of 2":    {Note{nine.Add(-44 * minute), nine.Add(16 * minute)}, 40 * minute},
		"it has just begun":                 {Note{nine.Add(-3 * minute), nine.Add(57 * minute)}, 0},
		"it begins tomorrow":                {Note{nine.Add(24 * time.Hour), nine.Add(25 * time.Hour)}, 0},
		"at most the limit":                 {Note{nine.Add(-24 * time.Hour), nine.Add(minute)}, time.Hour},
		"its end was two steps ago":         {Note{nine.Add(-44 * minute), nine.Add(-4 * minute)}, 40 * minute},
		"its end was more than that ago":    {Note{nine.Add(-44 * minute), nine.Add(-4*minute - 1)}, 0},
		"it is of last year, or this clock": {Note{nine.AddDate(-1, 0, 0), nine.AddDate(-1, 0, 0).Add(time.Hour)}, 0},
	} {
		if got := test.n.recall(nine, &hour); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// The note of a pod that the memory knows begins after a quarter of the limit and stays while it is right within a step. It goes with the next
// work, and while the notebook does not answer.
func TestNote(t *testing.T) {
	const minute = time.Minute
	m, now, note := Memory{}, nine, Note{}
	next := func(after time.Duration, o Observation, want Note) {
		t.Helper()
		now = now.Add(after)
		o.Note = note
		p, known, err := Decide(m, o, now, hour)
		must.OK(t, err)
		if m, note = known, p.Note; note != want {
			t.Fatalf("at %v: %v, want %v", now, note, want)
		}
	}
	since := func(at time.Time) Note { return Note{at, at.Add(time.Hour)} }
	old := nine.Add(-5 * time.Hour)
	next(0, Observation{Phase: PhaseStarting, Pod: "p"}, Note{})
	next(minute, quiet("p", old), Note{}) // a minute of idle time at 9:01
	for range 6 {
		next(2*minute, quiet("p", old), Note{})
	}
	next(2*minute, quiet("p", old), since(nine)) // 15 minutes at 9:15
	next(3*minute, quiet("p", old), since(nine)) // two of three minutes count: 17 at 9:18, right within a step
	next(4*minute, quiet("p", old), since(nine.Add(3*minute)))
	lost := Observation{Phase: PhaseUnreachable, Pod: "p"}
	next(2*minute, lost, since(nine.Add(3*minute)))
	next(minute, lost, Note{})
	next(minute, quiet("p", old), since(nine.Add(6*minute))) // 20 minutes at 9:26
	next(minute, busy("p", old), Note{})
	next(minute, quiet("p", old), Note{})
	m = Memory{} // the process is a new one
	next(0, quiet("p", old), since(now))
	next(2*minute, quiet("p", old), note)
	next(2*minute, quiet("p", now.Add(2*minute)), Note{}) // a short pause of the user
}
