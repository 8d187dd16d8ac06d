package inference

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// replica is one replica of a run. Times are seconds since the start.
type replica struct {
	// serves is when it begins to serve, and free when each of its channels is free.
	serves float64
	free   []float64
}

// pool is the replicas of a variant.
type pool struct {
	variant  *traffic.Variant
	truth    traffic.Replica
	channels int
	loads    *loading
	// replicas are in the order in which they serve.
	replicas []*replica
	// seen are the times of the requests of an interval, and busy the time that they take of the channels.
	seen histogram
	busy float64
}

// fleet is the state of a run.
type fleet struct {
	pools []pool
	parts []float64
	now   float64
	rng   *rand.Rand
	slo   float64
	// cost is the sum of costs × seconds of all replicas.
	cost float64
}

// serve takes a request that arrives at a time, and returns how long it takes; +Inf where no replica serves.
func (f *fleet) serve(at float64) float64 {
	i := f.pick(at)
	if i < 0 {
		return math.Inf(1)
	}
	took := f.pools[i].serve(at, f.rng)
	f.pools[i].seen.add(took)
	return took
}

// serve is as that of the fleet, for a pool with a replica that serves, and without a note of how long the request takes.
func (p *pool) serve(at float64, rng *rand.Rand) float64 {
	r := p.ready(at, rng)
	k := 0
	for i := range r.free {
		if r.free[i] < r.free[k] {
			k = i
		}
	}
	need := p.need(rng)
	start := max(at, r.free[k])
	r.free[k] = start + need
	p.busy += need
	return r.free[k] - at
}

// need draws the time of a request: a fixed part and an exponential one.
func (p *pool) need(rng *rand.Rand) float64 {
	mean := p.truth.Time.Seconds()
	m := mean * math.Sqrt(p.truth.Variation)
	return mean - m + m*rng.ExpFloat64()
}

// pick draws a pool by the parts, among those with a replica that serves, and returns its index; -1 where there is none.
func (f *fleet) pick(at float64) int {
	sum := 0.0
	for i := range f.pools {
		if f.pools[i].serving(at) > 0 {
			sum += f.parts[i]
		}
	}
	x := f.rng.Float64() * sum
	for i := range f.pools {
		if f.pools[i].serving(at) == 0 || f.parts[i] == 0 {
			continue
		}
		if x -= f.parts[i]; x <= 0 {
			return i
		}
	}
	for i := range f.pools { // no part for any: a gateway would answer with an error; the request goes where it can
		if f.pools[i].serving(at) > 0 {
			return i
		}
	}
	return -1
}

// serving counts the replicas that serve. They are the first ones, since they began first.
func (p *pool) serving(at float64) int {
	n := len(p.replicas)
	for n > 0 && p.replicas[n-1].serves > at {
		n--
	}
	return n
}

func (p *pool) ready(at float64, rng *rand.Rand) *replica { return p.replicas[rng.IntN(p.serving(at))] }

// resize starts or stops replicas: those that serve last stop first.
func (p *pool) resize(n int, now float64) {
	for len(p.replicas) < n {
		p.replicas = append(p.replicas, &replica{serves: now + p.loads.time(p.variant), free: make([]float64, p.channels)})
	}
	slices.SortStableFunc(p.replicas, func(a, b *replica) int { return cmp.Compare(a.serves, b.serves) })
	p.replicas = p.replicas[:n]
}

// loading draws how long replicas load. No times are those that variants declare.
type loading struct {
	times []time.Duration
	rng   *rand.Rand
}

// time returns how many seconds a replica of a variant loads.
func (l *loading) time(v *traffic.Variant) float64 {
	if len(l.times) == 0 {
		return v.Load.Seconds()
	}
	return l.times[l.rng.IntN(len(l.times))].Seconds()
}

// histogram counts times in buckets that grow by a twentieth, as a Prometheus histogram with fine buckets.
type histogram struct {
	counts [400]int32
	all    int
}

const (
	leastTime = 1e-4
	growth    = 1.05
)

func (h *histogram) add(seconds float64) {
	at := 0
	if seconds > leastTime {
		at = 1 + int(min(float64(len(h.counts)-2), math.Log(seconds/leastTime)/math.Log(growth))) // without a replica it is infinite
	}
	h.counts[at]++
	h.all++
}

// quantile returns the upper bound of the bucket that holds the quantile, 0 for no requests.
func (h *histogram) quantile(q float64) time.Duration {
	left := float64(h.all) * (1 - q)
	if h.all == 0 {
		return 0
	}
	sum := 0.0
	for at := len(h.counts) - 1; at >= 0; at-- {
		if sum += float64(h.counts[at]); sum > left {
			return time.Duration(leastTime * math.Pow(growth, float64(at)) * float64(time.Second))
		}
	}
	return 0
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.all += o.all
}
