package traffic

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/must"
)

// paused decides on a fleet that is paused, as somebody else has sized it.
func paused(t *rapid.T, f Fleet, seen Seen, m *Memory) (*Fleet, *Plan, *Memory) {
	f.Paused, f.Variants = true, append([]Variant(nil), f.Variants...)
	for i := range f.Variants {
		v := &f.Variants[i]
		v.Wanted = rapid.IntRange(0, 30).Draw(t, "wanted") // a user may leave the bounds
		v.Ready = rapid.IntRange(0, v.Wanted).Draw(t, "ready")
		v.Warm, v.Part = float64(v.Ready), rapid.Float64Range(0, 1).Draw(t, "part")
		v.Fails = rapid.IntRange(0, 9).Draw(t, "fails") == 0
		v.Measured = Measured{Arrivals: rapid.Float64Range(0, 60).Draw(t, "arrivals"), Latency: time.Duration(rapid.IntRange(0, 5e9).Draw(t, "latency")), Quantile: .99}
	}
	seen.Latency = time.Duration(rapid.IntRange(0, 5e9).Draw(t, "fleet's latency"))
	plan, after, err := Decide(&f, seen, m, Config{})
	must.OK(t, err)
	return &f, plan, after
}

// A paused fleet keeps all sizes and parts whatever is measured, and needs nothing later. It goes on with what was known before and with what
// arrived: two pauses with the same requests end alike, however slow the replicas were and whoever scaled them.
func TestPropertyPause(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLoop(twoGPUs())
		for range rapid.IntRange(0, 60).Draw(t, "decisions before") {
			must.OK(t, l.step(rapid.Float64Range(0, 200).Draw(t, "rate")))
		}
		a, b := l.memory, l.memory
		for range rapid.IntRange(1, 60).Draw(t, "decisions in the pause") {
			l.now = l.now.Add(l.every)
			seen := Seen{At: l.now, Rate: rapid.Float64Range(0, 400).Draw(t, "rate")}
			for _, m := range []**Memory{&a, &b} {
				f, plan, after := paused(t, l.fleet, seen, *m)
				if *m = after; plan.Reason != Paused || plan.Later != nil {
					t.Fatalf("%s, later %v", plan.Reason, plan.Later)
				}
				for i, s := range plan.Variants {
					if v := &f.Variants[i]; s.Replicas != v.Wanted || s.Part != v.Part {
						t.Fatalf("%s has %d replicas with the part %v, and should have %d with %v", v.Name, v.Wanted, v.Part, s.Replicas, s.Part)
					}
				}
			}
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("two pauses in which the same requests arrived:\n%s", diff)
		}
	})
}

// A pause of half a day, in which the promise is broken all the time and far fewer requests arrive than before: afterwards no replica leaves before the
// patience is over, eight minutes by the clock for a load time of one, and none comes.
func TestPauseTeachesNothing(t *testing.T) {
	l := newLoop(twoGPUs())
	l.run(t, 30*time.Minute, always(300))
	before := l.sizes()
	l.fleet.Paused = true
	for range 12 * 60 {
		l.every = time.Minute
		must.OK(t, l.step(100))
	}
	if diff := cmp.Diff(before, l.sizes()); diff != "" || l.plan.Reason != Paused || l.plan.Demand < 100 || l.plan.Demand > 200 {
		t.Fatalf("in the pause: %s%s, demand %v", diff, l.plan.Reason, l.plan.Demand)
	}
	l.fleet.Paused, l.every = false, 15*time.Second
	for passed := time.Duration(0); passed < 7*time.Minute; passed += l.every {
		must.OK(t, l.step(100))
		if diff := cmp.Diff(before, l.sizes()); diff != "" {
			t.Fatalf("%v after the pause: %s", passed, diff)
		}
	}
	l.run(t, 10*time.Minute, always(100))
	if after := l.sizes(); after[0] >= before[0] {
		t.Errorf("it had %v, and has %v when the patience is over", before, after)
	}
}

// A variant of which the least and the largest number are the same has that number, whatever arrives: so a size is pinned. 20 a second are far less
// than three a100 serve.
func TestPinnedVariant(t *testing.T) {
	f := twoGPUs()
	f.Variants[0].Least, f.Variants[0].Most = 3, 3
	l := newLoop(f)
	for _, rate := range []float64{20, 0, 2000} {
		l.run(t, 20*time.Minute, always(rate))
		if got := l.sizes()[0]; got != 3 {
			t.Errorf("%d a100 at %v requests a second, 3 are pinned", got, rate)
		}
	}
}
