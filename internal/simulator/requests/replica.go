package requests

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// replica is one replica. Times are seconds since the start of the run.
type replica struct {
	// serves is when it begins to serve, and free when each of its channels is free.
	serves float64
	free   []float64
}

// pool is the replicas of a fleet, in the order in which they serve.
type pool struct {
	of       traffic.Replica
	replicas []*replica
}

// resize starts or stops replicas: those that serve last stop first.
func (p *pool) resize(n int, serves float64) {
	for len(p.replicas) < n {
		p.replicas = append(p.replicas, &replica{serves: serves, free: make([]float64, max(1, int(math.Round(p.of.Rate*p.of.Time.Seconds()))))})
	}
	slices.SortStableFunc(p.replicas, func(a, b *replica) int { return cmp.Compare(a.serves, b.serves) })
	p.replicas = p.replicas[:n]
}

// serving counts the replicas that serve.
func (p *pool) serving(at float64) int {
	n := len(p.replicas)
	for n > 0 && p.replicas[n-1].serves > at {
		n--
	}
	return n
}

// serve takes a request that arrives at a time, and returns how many seconds it takes; +Inf where no replica serves.
func (p *pool) serve(at float64, random *rand.Rand) float64 {
	n := p.serving(at)
	if n == 0 {
		return math.Inf(1)
	}
	free := p.replicas[random.IntN(n)].free
	k := slices.Index(free, slices.Min(free))
	mean := p.of.Time.Seconds()
	spread := mean * math.Sqrt(p.of.Variation) // a fixed part and an exponential one
	free[k] = max(at, free[k]) + mean - spread + spread*random.ExpFloat64()
	return free[k] - at
}
