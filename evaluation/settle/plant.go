package settle

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// World is what happens to a fleet of one variant. Times are in seconds since it began.
type World struct {
	Name string
	// Rate is what arrives, in requests a second, and Slower how many times slower than declared the replicas are; nil is 1.
	Rate, Slower func(at float64) float64
	// Noise is the deviation of the logarithm of the measured latency, beside that of the requests themselves.
	Noise float64
	// Load is how long a replica loads, and Delay how old measurements are, beyond the window that they are of.
	Load, Delay time.Duration
	// Buckets are the upper bounds in seconds of a histogram from which latencies are read, as Prometheus does: nil for exact ones. Summaries has each
	// replica say its own, of which the longest counts.
	Buckets   []float64
	Summaries bool
	// Lie is measured in place of the latency at a time, where it is above 0; nil is never.
	Lie func(at float64) time.Duration
	// Clock is by how much the controller's clock is wrong at a time, in seconds; nil is never.
	Clock func(at float64) float64
	// Restarts is after which time the controller starts again, each time, with what the status of the fleet says; 0 is never.
	Restarts float64
	Seed     uint64
}

// Plant is a fleet in a world: each replica serves its requests in their order, and those that leave finish theirs.
type Plant struct {
	World
	Fleet traffic.Fleet
	// Changes are those of the size so far, Windows and Broken the measured windows and those that broke the promise, ReplicaSeconds the sum of
	// the replicas over the time.
	Changes         []Change
	Windows, Broken int
	ReplicaSeconds  float64

	memory    *traffic.Memory
	now       float64
	rand      *rand.Rand
	replicas  []*queue
	answers   []answer
	arrived   []float64
	restarted float64
}

// queue is a replica: when it serves, and when each of its channels is free.
type queue struct {
	from float64
	free []float64
}

type answer struct {
	at, took float64
	by       *queue
}

// Change is one of the size.
type Change struct {
	At       float64
	From, To int
	Reason   traffic.Reason
}

const (
	// begin is when plants begin, in seconds since 1970.
	begin = 1.8e9
	// every is the time between decisions, window that of which measurements are, both in seconds, and fewest the requests that a p99 takes.
	every, window, fewest = 15, 60, 100
	quantile              = .99
)

// New returns a fleet with so many replicas that serve. Each serves at most 20 requests a second, one after another, with a promise of ten times
// the time of a request.
func New(w World, replicas int) *Plant {
	p := &Plant{World: w, memory: &traffic.Memory{}, rand: rand.New(rand.NewPCG(w.Seed, 1))}
	p.Fleet = traffic.Fleet{
		Name: "f", Objective: traffic.Proportional, Promise: traffic.Promise{Quantile: quantile, Within: 500 * time.Millisecond},
		Variants: []traffic.Variant{{
			Name: "v", Replica: traffic.Replica{Rate: 20, Time: 50 * time.Millisecond, Variation: 1}, Cost: 2, Least: 1, Most: 60, Load: w.Load, Part: 1,
		}},
	}
	p.resize(replicas, 0)
	return p
}

// resize gives the fleet so many replicas, of which new ones serve from a time on.
func (p *Plant) resize(n int, from float64) {
	r := &p.Fleet.Variants[0].Replica
	for len(p.replicas) < n {
		p.replicas = append(p.replicas, &queue{from, make([]float64, int(max(1, math.Round(r.Rate*r.Time.Seconds()))))})
	}
	p.replicas = p.replicas[:n]
}

// Size is how many replicas the fleet has, those that load included.
func (p *Plant) Size() int { return len(p.replicas) }

// Run plays so many seconds.
func (p *Plant) Run(seconds float64) {
	for end := p.now + seconds; p.now < end; p.now += every {
		p.serve(every)
		p.ReplicaSeconds += every * float64(len(p.replicas))
		p.decide()
	}
}

// serve lets requests come until a time from now.
func (p *Plant) serve(span float64) {
	r := &p.Fleet.Variants[0].Replica
	fixed := 1 - math.Sqrt(min(1, r.Variation))
	for at := p.now; ; {
		if at += p.rand.ExpFloat64() / max(p.Rate(at), 1e-6); at >= p.now+span {
			return
		}
		p.arrived = append(p.arrived, at)
		ready := p.ready(at)
		if len(ready) == 0 {
			continue
		}
		s, first := ready[p.rand.IntN(len(ready))], 0
		for k, t := range s.free {
			if t < s.free[first] {
				first = k
			}
		}
		took := r.Time.Seconds() * valueAt(p.Slower, at, 1) * (fixed + (1-fixed)*p.rand.ExpFloat64())
		s.free[first] = max(at, s.free[first]) + took
		p.answers = append(p.answers, answer{s.free[first], s.free[first] - at, s})
	}
}

// valueAt is that of a function at a time, or another one where there is none.
func valueAt[T any](of func(float64) T, at float64, otherwise T) T {
	if of == nil {
		return otherwise
	}
	return of(at)
}

func (p *Plant) ready(at float64) (ready []*queue) {
	for _, s := range p.replicas {
		if s.from <= at {
			ready = append(ready, s)
		}
	}
	return ready
}

// measure returns the rate and the p99 of the last window that is known.
func (p *Plant) measure() (rate float64, latency time.Duration) {
	at := p.now - p.Delay.Seconds()
	in := func(t float64) bool { return t > at-window && t <= at }
	p.arrived = slices.DeleteFunc(p.arrived, func(t float64) bool { return t < at-window })
	p.answers = slices.DeleteFunc(p.answers, func(a answer) bool { return a.at < at-window })
	count, took, each := 0, []float64(nil), map[*queue][]float64{}
	for _, t := range p.arrived {
		if in(t) {
			count++
		}
	}
	for _, a := range p.answers {
		if in(a.at) {
			took = append(took, a.took)
			each[a.by] = append(each[a.by], a.took)
		}
	}
	if len(took) >= fewest {
		measured := quantileOf(took)
		if p.Windows++; measured > p.Fleet.Promise.Within.Seconds() {
			p.Broken++
		}
		switch {
		case p.Buckets != nil:
			measured = p.inBuckets(took)
		case p.Summaries:
			measured = 0
			for _, took := range each {
				measured = max(measured, quantileOf(took))
			}
		}
		latency = time.Duration(measured * math.Exp(p.Noise*p.rand.NormFloat64()) * float64(time.Second))
	}
	if lie := valueAt(p.Lie, p.now, 0); lie > 0 {
		latency = lie
	}
	return float64(count) / window, latency
}

func quantileOf(took []float64) float64 {
	slices.Sort(took)
	return took[int(quantile*float64(len(took)))]
}

// inBuckets is Prometheus' histogram_quantile: requests are taken to be spread evenly in a bucket, and those above the last bound to have taken that.
func (p *Plant) inBuckets(took []float64) float64 {
	rank, below, low := quantile*float64(len(took)), 0, 0.
	for _, high := range p.Buckets {
		upTo, _ := slices.BinarySearch(took, math.Nextafter(high, math.Inf(1)))
		if float64(upTo) >= rank {
			return low + (high-low)*(rank-float64(below))/float64(upTo-below)
		}
		below, low = upTo, high
	}
	return low
}

// decide measures, decides, and carries that out.
func (p *Plant) decide() {
	rate, latency := p.measure()
	v := &p.Fleet.Variants[0]
	v.Wanted, v.Ready, v.Warm = len(p.replicas), len(p.ready(p.now)), float64(len(p.ready(p.now)))
	v.Measured = traffic.Measured{Arrivals: rate / float64(v.Ready), Latency: latency, Quantile: quantile}
	if p.Restarts > 0 && p.now-p.restarted >= p.Restarts {
		p.restarted = p.now
		memory := &traffic.Memory{}
		if m := p.memory.Variants[v.Name]; m != nil {
			memory.Variants = map[string]*traffic.VariantMemory{v.Name: traffic.Learn(math.Exp(m.Slow.Mean))}
		}
		p.memory = memory
	}
	at := time.UnixMilli(int64((begin + p.now + valueAt(p.Clock, p.now, 0)) * 1000))
	plan, memory, err := traffic.Decide(&p.Fleet, traffic.Seen{At: at, Window: window * time.Second, Rate: rate, Latency: latency}, p.memory, traffic.Config{})
	if err != nil {
		panic(err) // the fleet is legal
	}
	p.memory = memory
	if n := plan.Variants[0].Replicas; n != len(p.replicas) {
		p.Changes = append(p.Changes, Change{p.now, len(p.replicas), n, plan.Reason})
		p.resize(n, p.now+v.Load.Seconds())
	}
}

// Since returns the changes after a time.
func (p *Plant) Since(at float64) []Change {
	return slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return c.At < at })
}

// Most returns the largest size that was wanted after a time.
func (p *Plant) Most(after float64) int {
	most := len(p.replicas)
	for _, c := range p.Since(after) {
		most = max(most, c.From, c.To)
	}
	return most
}

// Least returns the smallest size that was wanted after a time.
func (p *Plant) Least(after float64) int {
	least := len(p.replicas)
	for _, c := range p.Since(after) {
		least = min(least, c.From, c.To)
	}
	return least
}

// Right is the least number of replicas that keeps the promise at a rate.
func (p *Plant) Right(rate, slower float64) int {
	r := p.Fleet.Variants[0].Replica.Slowed(slower)
	return int(math.Ceil(rate / r.Capacity(p.Fleet.Promise)))
}
