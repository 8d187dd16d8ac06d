package settle

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// checkPatience holds all changes to the law that nothing leaves within the patience of a growth.
func checkPatience(t *testing.T, p *Plant) {
	t.Helper()
	grown, patience := math.Inf(-1), (&traffic.Config{}).PatienceFor(&p.Fleet).Seconds()
	for _, c := range p.Changes {
		if c.To < c.From && c.At-grown < patience {
			t.Errorf("from %d to %d replicas %v s after a growth, and the patience is %v s: %v", c.From, c.To, c.At-grown, patience, p.Changes)
		}
		if c.To > c.From {
			grown = c.At
		}
	}
}

// TestConstantLoadRests: at a constant load the size comes to rest, whatever the noise of what is measured, the time that replicas take to load and the size
// of the overload at the start: one replica for what takes up to twelve. It rests within one replica of the least that keeps the promise, and within
// a fifth where that is more: a forecast has a margin.
func TestConstantLoadRests(t *testing.T) {
	t.Parallel()
	for _, load := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute} {
		for _, noise := range []float64{0, .2} {
			for seed, rate := range []float64{4, 40, 120} {
				if rate > 100 && load != time.Minute {
					continue // each of its hours is half a million requests
				}
				t.Run(fmt.Sprintf("%v %v %v", load, noise, rate), func(t *testing.T) {
					p := New(World{Rate: constant(rate), Noise: noise, Load: load, Seed: uint64(seed)}, 1)
					p.Run(5 * 3600)
					checkPatience(t, p)
					right := p.Right(rate, 1)
					if late := p.Since(2 * 3600); len(late) > 2 {
						t.Errorf("%d changes from the third hour on: %v", len(late), p.Changes)
					}
					if n, most := p.Size(), right+max(1, right/5+1); n < right || n > most {
						t.Errorf("it rests at %d replicas, want %d to %d: %v", n, right, most, p.Changes)
					}
					if len(p.Changes) > 0 && float64(p.Most(load.Seconds()+15)) > max(1.5*float64(right), float64(right+2)) {
						t.Errorf("after the first load time it had up to %d replicas, %d are right: %v", p.Most(load.Seconds()), right, p.Changes)
					}
				})
			}
		}
	}
}

// TestUndoneShrinkRests: replicas that serve just about the load leave in a quiet quarter of an hour and come back in the next busy one. That happens once, after the first hours: the
// smaller size is not tried again for this load on the same day. It is tried at once for a smaller load.
func TestUndoneShrinkRests(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{2, 3} {
		p := New(World{Rate: constant(20), Load: 45 * time.Second, Seed: seed}, 0)
		p.Fleet.Promise.Within = 4 * time.Second
		p.Fleet.Variants[0].Replica = traffic.Replica{Rate: 4, Time: 250 * time.Millisecond, Variation: .2}
		p.resize(6, 0)
		p.Run(29 * 3600)
		checkPatience(t, p)
		if late := p.Since(5 * 3600); len(late) > 2 {
			t.Errorf("seed %d: %d changes in a day: %v", seed, len(late), p.Changes)
		}
		before := p.Size()
		p.Rate = constant(8)
		p.Run(2 * 3600)
		if n := p.Size(); n > 5 {
			t.Errorf("seed %d: %d replicas, and two hours later %d for two fifths of the load", seed, before, n)
		}
	}
}

// TestStepsAndRamps: after a step up there are never more than 1.3 times the right size (and one, since replicas are whole), after a step down and in ramps the
// size goes one way.
func TestStepsAndRamps(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		rate func(at float64) float64
		// to is the rate at the end.
		to         float64
		up, isRamp bool
	}{
		"step up":   {func(at float64) float64 { return pick(at < hour, 20., 80) }, 80, true, false},
		"step down": {func(at float64) float64 { return pick(at < hour, 80., 20) }, 20, false, false},
		"ramp up":   {func(at float64) float64 { return 20 + 60*min(1, max(0, at-hour)/(hour/2)) }, 80, true, true},
		"ramp down": {func(at float64) float64 { return 80 - 60*min(1, max(0, at-hour)/(hour/2)) }, 20, false, true},
	} {
		for _, noise := range []float64{0, .2} {
			t.Run(fmt.Sprintf("%s %v", name, noise), func(t *testing.T) {
				p := New(World{Rate: x.rate, Noise: noise, Load: time.Minute, Seed: 3}, 0)
				p.resize(p.Right(x.rate(0), 1)+1, 0)
				p.Run(4 * hour)
				checkPatience(t, p)
				right := p.Right(x.to, 1)
				if most := p.Most(hour); x.up && float64(most) > 1.3*float64(right)+1 {
					t.Errorf("up to %d replicas, %d are right: %v", most, right, p.Changes)
				}
				wrong := 0 // steps in the other direction, while the load changes and for half an hour
				for _, c := range p.Since(hour + 60) {
					if c.At < 2*hour && (c.To < c.From) == x.up {
						wrong++
					}
				}
				if wrong > 0 && x.isRamp || wrong > 1 {
					t.Errorf("%d changes in the other direction: %v", wrong, p.Changes)
				}
				if n := p.Size(); n < right || float64(n) > 1.3*float64(right)+1 {
					t.Errorf("it rests at %d replicas, %d are right: %v", n, right, p.Changes)
				}
			})
		}
	}
}

// TestReplicasThatBecomeSlow: real slowness is learned, in steps. Twenty minutes later the promise is kept nearly always, with no more than twice the
// right size on the way.
func TestReplicasThatBecomeSlow(t *testing.T) {
	t.Parallel()
	for _, slower := range []float64{1.3, 2} {
		becomes := func(at float64) float64 { return pick(at < 3600, 1, slower) }
		p := New(World{Rate: constant(40), Slower: becomes, Noise: .1, Load: time.Minute, Seed: 5}, 5)
		p.Fleet.Promise.Within = time.Second
		p.Run(3600 + 20*60)
		p.Broken, p.Windows = 0, 0
		p.Run(3 * 3600)
		checkPatience(t, p)
		right := p.Right(40, slower)
		if part := float64(p.Broken) / float64(p.Windows); part > .15 {
			t.Errorf("%v times slower: the promise is broken in %.2f of the windows: %d replicas, %d are right, %v", slower, part, p.Size(), right, p.Changes)
		}
		if most := p.Most(3600); most > 2*right {
			t.Errorf("%v times slower: up to %d replicas, %d are right: %v", slower, most, right, p.Changes)
		}
	}
}

// TestBacklogIsNoSlowness: the load is six times as high for one minute. The queue that stays behind cannot be seen in the rates. The fleet must not grow for it.
func TestBacklogIsNoSlowness(t *testing.T) {
	t.Parallel()
	for _, load := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute} {
		spike := func(at float64) float64 { return pick(at >= 3600 && at < 3660, 240., 40) }
		p := New(World{Rate: spike, Noise: .1, Load: load, Seed: 9}, 5)
		p.Run(3 * 3600)
		checkPatience(t, p)
		if late := p.Since(3600 + 120 + 2*load.Seconds()); len(late) > 0 && p.Most(late[0].At) > late[0].From {
			t.Errorf("load time %v: it grows after the spike: %v", load, p.Changes)
		}
		if n, right := p.Size(), p.Right(40, 1); n > right+2 {
			t.Errorf("load time %v: two hours later it has %d replicas, %d are right: %v", load, n, right, p.Changes)
		}
	}
}

// One window says nothing alone: a p99 of 20 s in the midst of short ones changes no size, and neither do three decisions that see the same window.
func TestOneWindowIsNone(t *testing.T) {
	lies := func(at float64) time.Duration {
		if at >= 2*3600 && at < 2*3600+60 {
			return 20 * time.Second
		}
		return 0
	}
	p := New(World{Rate: constant(40), Load: time.Minute, Lie: lies, Seed: 11}, 6)
	p.Run(3*3600 + 60)
	if late := p.Since(2 * 3600); len(late) > 1 || len(late) == 1 && late[0].To > late[0].From {
		t.Errorf("%v", late)
	}
}

// TestSlowGateway: two minutes of each hour in which something else than the replicas is slow teach, after the first time, that a few windows say little.
func TestSlowGateway(t *testing.T) {
	t.Parallel()
	for _, w := range Worlds() {
		if w.Name == "slow gateway" {
			w.Load, w.Noise = time.Minute, .2
			p := New(w, 5)
			p.Run(12 * hour)
			if late := p.Since(2 * hour); len(late) > 2 {
				t.Errorf("%d changes from the third hour on: %v", len(late), p.Changes)
			}
		}
	}
}

// TestWorldsSettle holds all worlds without an event of their own to two changes in half a day, and each to a size near the right one.
func TestWorldsSettle(t *testing.T) {
	t.Parallel()
	for _, w := range Worlds() {
		switch w.Name {
		case "constant", "few requests", "late measurements", "clock goes wrong", "controller restarts":
			t.Run(w.Name, func(t *testing.T) {
				t.Parallel()
				w.Load, w.Noise, w.Seed = time.Minute, .1, 2
				p := New(w, 0)
				right := p.Right(w.Rate(0), 1)
				p.resize(right+1, 0)
				p.Run(13 * hour)
				if late := p.Since(hour); len(late) > 2 || p.Size() < right || p.Size() > right+1 {
					t.Errorf("%d replicas, %d are right: %v", p.Size(), right, p.Changes)
				}
			})
		}
	}
}

// TestPresetsRest: the presets of InferenceFleets do not measure an exact p99. Prometheus reads it out of the buckets of a histogram, and Triton has each replica say that of its own
// few requests, of which the longest counts. At a constant load sizes are never too small all the same, and never more than about twice the right one. If the promise is in a wide bucket,
// up to eight replicas are held where five are right, and eleven where replicas say their own. One of them comes and goes a few times in the nine hours.
func TestPresetsRest(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]World{
		"triton": {Summaries: true},
		"vllm":   {Buckets: []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}},
		"kserve": {Buckets: []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}},
		"istio":  {Buckets: []float64{.0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800, 3600}},
	} {
		for _, within := range []time.Duration{3500 * time.Millisecond, 9 * time.Second, 18 * time.Second} {
			if name == "kserve" && within > 10*time.Second {
				continue // the controller reads no latency then
			}
			t.Run(fmt.Sprintf("%s %v", name, within), func(t *testing.T) {
				w.Noise, w.Load, w.Seed = .1, time.Minute, 4
				p := New(w, 0)
				p.Fleet.Promise.Within = within
				p.Fleet.Variants[0].Replica = traffic.Replica{Time: within / 6, Rate: 24 / within.Seconds(), Variation: .5}
				rate := 4.5 * p.Fleet.Variants[0].Replica.Capacity(p.Fleet.Promise)
				p.Rate = constant(rate)
				right := p.Right(rate, 1)
				p.resize(right+1, 0)
				p.Run(9 * hour)
				checkPatience(t, p)
				if late := p.Since(2 * hour); len(late) > 4 || p.Least(0) < right || p.Most(hour) > 2*right+1 {
					t.Errorf("%d replicas, %d are right: %v", p.Size(), right, p.Changes)
				}
			})
		}
	}
}
