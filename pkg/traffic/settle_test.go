package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// plant is a fleet of one variant with true queues: requests come by chance, each replica serves them in their order, and what is measured is of the
// last window, as it is when it was scraped. Replicas load before they serve, and those that leave finish their queues.
type plant struct {
	fleet  Fleet
	memory *Memory
	now    float64 // seconds
	rand   *rand.Rand
	// rate is what arrives at a time, slower how many times slower than declared the replicas are.
	rate   func(at float64) float64
	slower func(at float64) float64
	// noise is the deviation of the logarithm of the measured latency, beside that of the requests themselves.
	noise float64
	// lie is measured in place of the latency, where it is not 0.
	lie time.Duration
	// window and delay are those of the measurements.
	window, delay float64
	replicas      []*queue
	answers       []answer
	arrived       []float64
	changes       []change
	broken, ticks int
}

// queue is a replica: when it serves, and when each of its channels is free.
type queue struct {
	from float64
	free []float64
}

type answer struct{ at, took float64 }

type change struct {
	at       float64
	from, to int
	reason   Reason
}

// plantBegin is when plants begin, in seconds since 1970.
const plantBegin = 1.8e9

func newPlant(rate float64, load time.Duration, seed uint64) *plant {
	p := &plant{memory: &Memory{}, rand: rand.New(rand.NewPCG(seed, 1)), window: 60, now: plantBegin}
	p.fleet = Fleet{Name: "f", Objective: Proportional, Promise: Promise{Quantile: .99, Within: 500 * time.Millisecond}, Variants: []Variant{{
		Name: "v", Replica: single(20), Cost: 2, Least: 1, Most: 60, Load: load, Part: 1,
	}}}
	p.rate = func(float64) float64 { return rate }
	p.slower = func(float64) float64 { return 1 }
	return p
}

// start has so many replicas serve from the beginning.
func (p *plant) start(n int) {
	for range n {
		p.replicas = append(p.replicas, p.replica(0))
	}
}

func (p *plant) replica(from float64) *queue {
	return &queue{from, make([]float64, p.fleet.Variants[0].Replica.channels())}
}

// run plays so many seconds, with a decision every 15.
func (p *plant) run(seconds float64) {
	const every = 15
	for end := p.now + seconds; p.now < end; p.now += every {
		p.serve(every)
		p.decide()
	}
}

// serve lets requests come until a time from now.
func (p *plant) serve(span float64) {
	r := &p.fleet.Variants[0].Replica
	for at := p.now; ; {
		if at += p.rand.ExpFloat64() / max(p.rate(at), 1e-6); at >= p.now+span {
			break
		}
		p.arrived = append(p.arrived, at)
		ready := p.ready(at)
		if len(ready) == 0 {
			continue
		}
		s := ready[p.rand.IntN(len(ready))]
		first := 0
		for k, t := range s.free {
			if t < s.free[first] {
				first = k
			}
		}
		mean := r.Time.Seconds() * p.slower(at)
		took := mean*(1-math.Sqrt(min(1, r.Variation))) + mean*math.Sqrt(min(1, r.Variation))*p.rand.ExpFloat64()
		s.free[first] = max(at, s.free[first]) + took
		p.answers = append(p.answers, answer{s.free[first], s.free[first] - at})
	}
}

func (p *plant) ready(at float64) (ready []*queue) {
	for _, s := range p.replicas {
		if s.from <= at {
			ready = append(ready, s)
		}
	}
	return ready
}

// decide measures, decides, and carries that out.
func (p *plant) decide() {
	at := p.now - p.delay
	in := func(t float64) bool { return t > at-p.window && t <= at }
	p.arrived = slices.DeleteFunc(p.arrived, func(t float64) bool { return t < at-2*p.window })
	p.answers = slices.DeleteFunc(p.answers, func(a answer) bool { return a.at < at-2*p.window })
	count, took := 0, []float64(nil)
	for _, t := range p.arrived {
		if in(t) {
			count++
		}
	}
	for _, a := range p.answers {
		if in(a.at) {
			took = append(took, a.took)
		}
	}
	slices.Sort(took)
	latency := time.Duration(0)
	if len(took) >= 100 {
		latency = seconds(took[int(.99*float64(len(took)))] * math.Exp(p.noise*p.rand.NormFloat64()))
		if p.ticks++; latency > p.fleet.Promise.Within {
			p.broken++
		}
	}
	if p.lie > 0 {
		latency = p.lie
	}
	v := &p.fleet.Variants[0]
	v.Wanted, v.Ready, v.Warm = len(p.replicas), len(p.ready(p.now)), float64(len(p.ready(p.now)))
	rate := float64(count) / p.window
	v.Measured = Measured{Arrivals: rate / float64(v.Ready), Latency: latency, Quantile: .99}
	plan, memory, err := Decide(&p.fleet, Seen{At: time.UnixMilli(int64(p.now * 1000)), Window: seconds(p.window), Rate: rate, Latency: latency}, p.memory, Config{})
	if err != nil {
		panic(err) // the fleet of the test is legal
	}
	p.memory = memory
	if n := plan.Variants[0].Replicas; n != len(p.replicas) {
		p.changes = append(p.changes, change{p.now - plantBegin, len(p.replicas), n, plan.Reason})
		for len(p.replicas) < n {
			p.replicas = append(p.replicas, p.replica(p.now+v.Load.Seconds()))
		}
		p.replicas = p.replicas[:n]
	}
}

// since returns the changes after a time, in seconds from the begin.
func (p *plant) since(at float64) []change {
	return slices.DeleteFunc(slices.Clone(p.changes), func(c change) bool { return c.at < at })
}

// most returns the largest size that was wanted after a time.
func (p *plant) most(after float64) (most int) {
	most = p.changes[0].from
	for _, c := range p.changes {
		if c.at < after {
			most = c.to
		} else {
			most = max(most, c.to)
		}
	}
	return most
}

// right is the least number of replicas that keeps the promise at a rate.
func (p *plant) right(rate, slower float64) int {
	r := p.fleet.Variants[0].Replica.Slowed(slower)
	return int(math.Ceil(rate / r.Capacity(p.fleet.Promise)))
}

// checkPatience holds all changes to the law that nothing leaves within the patience of a growth.
func (p *plant) checkPatience(t *testing.T) {
	t.Helper()
	grown, patience := math.Inf(-1), (&Config{}).PatienceFor(&p.fleet).Seconds()
	for _, c := range p.changes {
		if c.to < c.from && c.at-grown < patience {
			t.Errorf("from %d to %d replicas %v s after a growth, and the patience is %v s: %v", c.from, c.to, c.at-grown, patience, p.changes)
		}
		if c.to > c.from {
			grown = c.at
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
					p := newPlant(rate, load, uint64(seed))
					p.noise = noise
					p.start(1)
					p.run(5 * 3600)
					p.checkPatience(t)
					right := p.right(rate, 1)
					if late := p.since(2 * 3600); len(late) > 2 {
						t.Errorf("%d changes from the third hour on: %v", len(late), p.changes)
					}
					if n, most := len(p.replicas), right+max(1, right/5+1); n < right || n > most {
						t.Errorf("it rests at %d replicas, want %d to %d: %v", n, right, most, p.changes)
					}
					if len(p.changes) > 0 && float64(p.most(load.Seconds()+15)) > max(1.5*float64(right), float64(right+2)) {
						t.Errorf("after the first load time it had up to %d replicas, %d are right: %v", p.most(load.Seconds()), right, p.changes)
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
		p := newPlant(20, 45*time.Second, seed)
		p.fleet.Promise.Within = 4 * time.Second
		p.fleet.Variants[0].Replica = Replica{Rate: 4, Time: 250 * time.Millisecond, Variation: .2}
		p.start(6)
		p.run(29 * 3600)
		p.checkPatience(t)
		if late := p.since(5 * 3600); len(late) > 2 {
			t.Errorf("seed %d: %d changes in a day: %v", seed, len(late), p.changes)
		}
		before := len(p.replicas)
		p.rate = func(float64) float64 { return 8 }
		p.run(2 * 3600)
		if n := len(p.replicas); n > 5 {
			t.Errorf("seed %d: %d replicas, and two hours later %d for two fifths of the load", seed, before, n)
		}
	}
}

// TestStepsAndRamps: after a step up there are never more than 1.3 times the right size (and one, since replicas are whole), after a step down and in ramps the
// size goes one way.
func TestStepsAndRamps(t *testing.T) {
	t.Parallel()
	const hour = 3600.0
	for name, x := range map[string]struct {
		rate func(at float64) float64
		// to is the rate at the end.
		to         float64
		up, isRamp bool
	}{
		"step up":   {func(at float64) float64 { return pick(at < hour, 20, 80) }, 80, true, false},
		"step down": {func(at float64) float64 { return pick(at < hour, 80, 20) }, 20, false, false},
		"ramp up":   {func(at float64) float64 { return 20 + 60*min(1, max(0, at-hour)/(hour/2)) }, 80, true, true},
		"ramp down": {func(at float64) float64 { return 80 - 60*min(1, max(0, at-hour)/(hour/2)) }, 20, false, true},
	} {
		for _, noise := range []float64{0, .2} {
			t.Run(fmt.Sprintf("%s %v", name, noise), func(t *testing.T) {
				p := newPlant(0, time.Minute, 3)
				p.noise = noise
				p.rate = func(at float64) float64 { return x.rate(at - plantBegin) }
				p.start(p.right(x.rate(0), 1) + 1)
				p.run(4 * hour)
				p.checkPatience(t)
				right := p.right(x.to, 1)
				if most := p.most(hour); x.up && float64(most) > 1.3*float64(right)+1 {
					t.Errorf("up to %d replicas, %d are right: %v", most, right, p.changes)
				}
				wrong := 0 // steps in the other direction, while the load changes and for half an hour
				for _, c := range p.since(hour + 60) {
					if c.at < 2*hour && (c.to < c.from) == x.up {
						wrong++
					}
				}
				if wrong > 0 && x.isRamp || wrong > 1 {
					t.Errorf("%d changes in the other direction: %v", wrong, p.changes)
				}
				if n := len(p.replicas); n < right || float64(n) > 1.3*float64(right)+1 {
					t.Errorf("it rests at %d replicas, %d are right: %v", n, right, p.changes)
				}
			})
		}
	}
}

func pick(first bool, a, b float64) float64 {
	if first {
		return a
	}
	return b
}

// TestReplicasThatBecomeSlow: real slowness is learned, in steps. Twenty minutes later the promise is kept nearly always, with no more than twice the
// right size on the way.
func TestReplicasThatBecomeSlow(t *testing.T) {
	t.Parallel()
	for _, slower := range []float64{1.3, 2} {
		p := newPlant(40, time.Minute, 5)
		p.noise, p.fleet.Promise.Within = .1, time.Second
		p.slower = func(at float64) float64 { return pick(at < plantBegin+3600, 1, slower) }
		p.start(5)
		p.run(3600 + 20*60)
		p.broken, p.ticks = 0, 0
		p.run(3 * 3600)
		p.checkPatience(t)
		right := p.right(40, slower)
		if part := float64(p.broken) / float64(p.ticks); part > .15 {
			t.Errorf("%v times slower: the promise is broken in %.2f of the windows: %d replicas, %d are right, %v", slower, part, len(p.replicas), right, p.changes)
		}
		if most := p.most(3600); most > 2*right {
			t.Errorf("%v times slower: up to %d replicas, %d are right: %v", slower, most, right, p.changes)
		}
	}
}

// TestBacklogIsNoSlowness: a minute of six times the load leaves a queue that nobody sees any more in the rates. No size stays above what the spike itself asked for.
func TestBacklogIsNoSlowness(t *testing.T) {
	t.Parallel()
	for _, load := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute} {
		p := newPlant(40, load, 9)
		p.noise = .1
		p.rate = func(at float64) float64 { return pick(at >= plantBegin+3600 && at < plantBegin+3660, 240, 40) }
		p.start(5)
		p.run(3 * 3600)
		p.checkPatience(t)
		if late := p.since(3600 + 120 + 2*load.Seconds()); len(late) > 0 && p.most(late[0].at) > late[0].from {
			t.Errorf("load time %v: it grows after the spike: %v", load, p.changes)
		}
		if n, right := len(p.replicas), p.right(40, 1); n > right+2 {
			t.Errorf("load time %v: two hours later it has %d replicas, %d are right: %v", load, n, right, p.changes)
		}
	}
}

// TestNoCliff: near the edge of a promise, a learned slowdown that differs by a hundredth does not change the size by more than twice, and none asks for more
// than twice of what the declaration does.
func TestNoCliff(t *testing.T) {
	f := Fleet{Name: "f", Objective: Proportional, Promise: Promise{Within: 31800 * time.Microsecond, Quantile: .99}, Variants: []Variant{{
		Name: "v", Replica: Replica{Rate: 94, Time: 10600 * time.Microsecond, Variation: .1}, Cost: 10, Least: 1, Most: 1000, Load: 25 * time.Second, Wanted: 3, Ready: 3, Warm: 3, Part: 1,
		Measured: Measured{Arrivals: math.NaN()},
	}}}
	sizes := map[int]int{}
	for percent := 100; percent <= 200; percent++ {
		p, _ := decided(t, &f, Seen{At: midnight, Rate: 150}, &Memory{Variants: map[string]*VariantMemory{"v": Learn(float64(percent) / 100)}})
		if sizes[percent] = p.Variants[0].Replicas; percent > 100 && sizes[percent] > 2*sizes[percent-1] || sizes[percent] > 2*sizes[100] {
			t.Errorf("at %d %% of the declared time there are %d replicas, at one less %d, at 100 %d", percent, sizes[percent], sizes[percent-1], sizes[100])
		}
	}
}

// One window says nothing alone: a p99 of 20 s in the midst of short ones changes no size, and neither do three decisions that see the same window.
func TestOneWindowIsNone(t *testing.T) {
	p := newPlant(40, time.Minute, 11)
	p.start(6)
	p.run(2 * 3600)
	before := len(p.changes)
	p.lie = 20 * time.Second
	p.run(60)
	p.lie = 0
	p.run(3600)
	if late := p.changes[before:]; len(late) > 1 || len(late) == 1 && late[0].to > late[0].from {
		t.Errorf("%v", late)
	}
}
