package notebook

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawConfig draws a legal configuration.
func drawConfig(t *rapid.T) Config {
	limit := time.Duration(rapid.IntRange(60, 7200).Draw(t, "limit")) * time.Second
	return Config{
		Limit:  limit,
		Notice: time.Duration(rapid.Int64Range(1, int64(limit)).Draw(t, "notice")),
		Step:   time.Duration(rapid.IntRange(1, 600).Draw(t, "step")) * time.Second,
	}
}

// drawObservation draws any observation, of one of two pods. Times of activity are around now, on either side.
func drawObservation(t *rapid.T, now time.Time) Observation {
	o := Observation{
		Phase: rapid.SampledFrom([]Phase{PhaseOff, PhaseStarting, PhaseUnreachable, PhaseServing, PhaseServing, PhaseServing}).Draw(t, "phase"),
		Pod:   rapid.SampledFrom([]string{"p", "q"}).Draw(t, "pod"),
	}
	if rapid.Bool().Draw(t, "noted") {
		since := now.Add(-time.Duration(rapid.IntRange(-3600, 100_000).Draw(t, "since")) * time.Second)
		o.Note = Note{since, since.Add(time.Duration(rapid.IntRange(0, 100_000).Draw(t, "ends")) * time.Second)}
	}
	if o.Phase == PhaseServing {
		o.Busy = rapid.IntRange(0, 9).Draw(t, "busy") == 0
		o.Activity = now.Add(-time.Duration(rapid.IntRange(-3600, 100_000).Draw(t, "age")) * time.Second)
	}
	return o
}

// drawJump draws how far the clock goes between two observations: mostly a little, at times years, also back.
func drawJump(t *rapid.T) time.Duration {
	if rapid.IntRange(0, 4).Draw(t, "jumps") == 0 {
		return time.Duration(rapid.Int64Range(-1e9, 1e9).Draw(t, "jump")) * time.Second
	}
	return time.Duration(rapid.IntRange(0, 120).Draw(t, "goes")) * time.Second
}

// decide is Decide of legal arguments.
func decide(t *rapid.T, m Memory, o Observation, now time.Time, c Config) (Plan, Memory) {
	p, next, err := Decide(m, o, now, c)
	if err != nil {
		t.Fatal(err)
	}
	return p, next
}

// story draws a sequence of observations, most of them like the one before, and shows each with its plan.
func story(t *rapid.T, c Config, show func(o Observation, p Plan, before, after Memory)) {
	m, now := Memory{}, nine
	o := drawObservation(t, now)
	for range rapid.IntRange(1, 60).Draw(t, "looks") {
		now = now.Add(drawJump(t))
		if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
			o = drawObservation(t, now)
		}
		p, next := decide(t, m, o, now, c)
		show(o, p, m, next)
		m = next
	}
}

// A notebook that is busy or unreachable is never parked, whatever came before and whatever the clock says.
func TestNeverParksBusyLaw(t *testing.T) {
	parked := 0
	rapid.Check(t, func(t *rapid.T) {
		story(t, drawConfig(t), func(o Observation, p Plan, _, _ Memory) {
			if p.Park {
				parked++
			}
			if p.Park && (o.Busy || o.Phase == PhaseUnreachable || o.Phase == PhaseOff) {
				t.Fatalf("parks %+v", o)
			}
		})
	})
	if parked == 0 {
		t.Error("no story parked a notebook")
	}
}

// Between the warning and the end, all observations show the same idle pod or an unreachable one, and they are as many as the notice takes
// steps: a clock that jumps adds one step.
func TestWarnedBeforeLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		looks, warned := 0, Observation{}
		story(t, c, func(o Observation, p Plan, before, _ Memory) {
			switch {
			case p.Warn:
				looks, warned = 0, o
			case p.State == Warned && o.Phase != PhaseUnreachable:
				if !o.same(&warned) || o.Busy != warned.Busy {
					t.Fatalf("%+v is Warned without a warning: %+v", o, before)
				}
				looks++
			}
			if p.Park && time.Duration(looks)*c.Step < c.Notice {
				t.Fatalf("parks %d steps of %v after the warning, the notice is %v", looks, c.Step, c.Notice)
			}
		})
	})
}

// No single observation parks a notebook that was not warned before, and none adds more than a step to the idle time of a pod that was seen
// before.
func TestJumpLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		story(t, c, func(o Observation, p Plan, before, after Memory) {
			if p.Park && before.State != Warned {
				t.Fatalf("parks from %s", before.State)
			}
			if before.seen.Phase == o.Phase && before.seen.Pod == o.Pod && after.idle > before.idle+c.Step {
				t.Fatalf("%v of idle time after %v, a step is %v", after.idle, before.idle, c.Step)
			}
		})
	})
}

// A notebook that does not answer keeps its state and all times.
func TestUnreachableLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		story(t, c, func(o Observation, _ Plan, before, after Memory) {
			if o.Phase != PhaseUnreachable || before.seen.Pod != o.Pod || before.State == Parked || before.State == "" {
				return
			}
			if after.State != before.State || after.idle != before.idle || after.served != before.served {
				t.Fatalf("%+v became %+v", before, after)
			}
		})
	})
}

// A notebook in which nothing works is parked after any history, within the limit and the notice by an honest clock and not before the
// notice. The same holds for one whose pod never starts. So waking ends.
func TestEndsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, m := drawConfig(t), Memory{}
		story(t, c, func(_ Observation, _ Plan, _, after Memory) { m = after })
		o := Observation{Phase: rapid.SampledFrom([]Phase{PhaseStarting, PhaseServing}).Draw(t, "ends"), Pod: "last"}
		now := nine.Add(24 * 365 * 100 * time.Hour)
		if o.Phase == PhaseServing {
			o.Activity = now.Add(-time.Duration(rapid.IntRange(0, 100_000).Draw(t, "age")) * time.Second)
		}
		every, begin, warned := c.Step, now, time.Time{}
		for p := (Plan{}); !p.Park; now = now.Add(every) {
			if p, m = decide(t, m, o, now, c); p.Warn {
				warned = now
			}
			if now.Sub(begin) > c.Limit+c.Notice+2*every {
				t.Fatalf("%+v is not parked after %v", o, now.Sub(begin))
			}
			if p.Park && (warned.IsZero() || now.Sub(warned) < c.Notice) {
				t.Fatalf("parked at %v, warned at %v, the notice is %v", now, warned, c.Notice)
			}
		}
		if p, _ := decide(t, m, Observation{Phase: PhaseOff}, now, c); p.State != Parked || p.Park {
			t.Fatalf("off is %+v", p)
		}
	})
}

// The plan says when the notebook is parked: with an honest clock the time left becomes less by what passes.
func TestParksInLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		every := time.Duration(rapid.Int64Range(1, int64(c.Step)).Draw(t, "every"))
		m, now, o := Memory{}, nine, quiet("p", nine)
		left := c.Limit
		for range 50 {
			p, next := decide(t, m, o, now, c)
			// A warning that comes late, since looks are apart, puts the end off.
			if p.Warn {
				left = max(left, c.Notice)
			}
			if want := max(0, left); p.ParksIn != want || p.Park != (left <= 0) {
				t.Fatalf("%+v, want %v left", p, want)
			}
			m, now, left = next, now.Add(every), left-every
		}
	})
}

// drawLooks draws what looks at one pod see, half a step or a step apart: spells of the kinds, which are kernels that work, a GPU that works while
// they do not, a server that is lost, and quiet. In the end nothing works for ever.
func drawLooks(t *rapid.T, c *Config, kinds ...string) (looks []Observation, times []time.Time) {
	now, activity := nine, nine.Add(-time.Duration(rapid.IntRange(0, 100_000).Draw(t, "age"))*time.Second)
	look := func(o Observation) {
		now = now.Add(rapid.SampledFrom([]time.Duration{c.Step / 2, c.Step / 2, c.Step}).Draw(t, "passes"))
		looks, times = append(looks, o), append(times, now)
	}
	for range rapid.IntRange(0, 8).Draw(t, "spells") {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		for range rapid.IntRange(1, 40).Draw(t, "long") {
			switch kind {
			case "kernel":
				activity = now
				look(busy("p", activity))
			case "GPU":
				look(busy("p", activity))
			case "lost":
				look(Observation{Phase: PhaseUnreachable, Pod: "p"})
			case "quiet":
				look(quiet("p", activity))
			}
		}
	}
	for end := now.Add(3*c.Limit + 20*c.Step); now.Before(end); {
		look(quiet("p", activity))
	}
	return looks, times
}

// follow decides on looks until one parks and returns its number. The memory is lost before those of lives, and the note is not.
func follow(t *rapid.T, looks []Observation, times []time.Time, c Config, lives map[int]bool) int {
	m, note := Memory{}, Note{}
	for i, o := range looks {
		if lives[i] {
			m = Memory{}
		}
		o.Note = note
		p, next := decide(t, m, o, times[i], c)
		if p.Park {
			return i
		}
		m = next
		note = Note{p.Note.IdleSince.Truncate(time.Second), p.Note.ParksAt.Truncate(time.Second)} // as annotations have it
	}
	t.Fatalf("not parked in %d looks", len(looks))
	return 0
}

// drawUsual draws a configuration with looks that are short beside the limit.
func drawUsual(t *rapid.T) Config {
	limit := time.Duration(rapid.IntRange(20, 180).Draw(t, "minutes")) * time.Minute
	return Config{
		Limit: limit, Notice: time.Duration(rapid.Int64Range(int64(time.Minute), int64(limit/2)).Draw(t, "notice")),
		Step: time.Duration(rapid.IntRange(20, 120).Draw(t, "step")) * time.Second,
	}
}

// A caller that restarts, at any moments and as often as it likes, never parks a notebook sooner than one that does not.
func TestRestartsNeverParkSoonerLaw(t *testing.T) {
	later := 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawUsual(t)
		looks, times := drawLooks(t, &c, "kernel", "GPU", "lost", "quiet", "quiet")
		never := follow(t, looks, times, c, nil)
		lives := map[int]bool{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, never), 1, 5).Draw(t, "restarts") {
			lives[i] = true
		}
		got := follow(t, looks, times, c, lives)
		if got < never {
			t.Fatalf("parked at %v, without a restart at %v", times[got], times[never])
		}
		if got > never {
			later++
		}
	})
	if later == 0 {
		t.Error("no restart made a difference")
	}
}

// One restart, at any moment, parks a notebook that answers and in which nothing works any more later by a quarter of the limit or the notice,
// whichever is longer, and a few looks.
func TestRestartParksLittleLaterLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawUsual(t)
		looks, times := drawLooks(t, &c, "kernel", "GPU", "quiet")
		never := follow(t, looks, times, c, nil)
		from := never // the first look after which each sees the same quiet notebook
		for from > 0 && looks[from-1].same(&looks[never]) && !looks[from-1].Busy {
			from--
		}
		for i := range looks[never:] {
			looks[never+i] = looks[never]
		}
		restart := rapid.IntRange(from, never).Draw(t, "restart")
		got := follow(t, looks, times, c, map[int]bool{restart: true})
		if most := max(c.Limit/noteFrom, c.Notice) + 6*c.Step; got < never || times[got].Sub(times[never]) > most {
			t.Fatalf("a restart at %v parks at %v, without at %v, and at most %v later is right", times[restart], times[got], times[never], most)
		}
	})
}

// A caller that restarts again and again still parks a notebook in which nothing works, if each life is longer than the notice.
func TestRestartsEndLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawUsual(t)
		every := c.Step / 2
		o, now, m := quiet("p", nine.Add(-100*time.Hour)), nine, Memory{}
		life := c.Notice + 4*c.Step + time.Duration(rapid.Int64Range(0, int64(c.Limit)).Draw(t, "life"))
		for born, p := now, (Plan{}); !p.Park; now = now.Add(every) {
			if now.Sub(born) > life {
				born, m = now, Memory{}
			}
			p, m = decide(t, m, o, now, c)
			o.Note = p.Note
			if lives := 2 + c.Limit/(life-3*c.Step); now.Sub(nine) > c.Limit+c.Notice+lives*(3*c.Step+every) {
				t.Fatalf("not parked after %v in lives of %v", now.Sub(nine), life)
			}
		}
	})
}

// A caller that restarts gives the whole notice for any note, and makes no more idle time of the note than the notebook's own times allow.
func TestNoteIsBoundedLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		o := drawObservation(t, nine)
		p, m := decide(t, Memory{}, o, nine, c)
		if p.Park || p.State == Warned && p.ParksIn < c.Notice {
			t.Fatalf("%+v of the first look at %+v", p, o)
		}
		if own := max(0, nine.Sub(o.Activity)); o.Phase == PhaseServing && m.idle > own {
			t.Fatalf("%v of idle time, by the notebook's own times it is %v", m.idle, own)
		}
	})
}
