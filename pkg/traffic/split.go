package traffic

import (
	"fmt"
	"math"
	"slices"
)

// Pool is the replicas of one variant that serve now.
type Pool struct {
	Replica Replica
	// Replicas counts them, 0 or more. A replica that is still cold counts for a part.
	Replicas float64
	// Capacity is how many requests a second a replica serves within the promise, 0 where it cannot keep the promise. If it is 0 in all
	// pools, no pool has a bound.
	Capacity float64
}

// Objective says what a division of requests is best for.
type Objective string

// The objectives.
const (
	// Proportional gives each pool requests in proportion to its rate, as SMIF does: all replicas are equally busy.
	Proportional Objective = "proportional"
	// MeanOptimal has the least mean latency of all requests. Slow pools get nothing where fast ones suffice.
	MeanOptimal Objective = "mean-optimal"
	// TailOptimal has the least quantile of the slowest pool: all pools that get requests have the same.
	TailOptimal Objective = "p99-optimal"
)

// Objectives are the legal ones.
var Objectives = []Objective{Proportional, MeanOptimal, TailOptimal}

// Validate says that an objective is not one, and which are.
func (o Objective) Validate() error {
	if !slices.Contains(Objectives, o) {
		return fmt.Errorf("objective %q: legal are %q", string(o), Objectives)
	}
	return nil
}

// Split divides a rate of requests over pools. The result is requests a second for each pool, with the sum demand. It is the division that
// is best for the objective among those in which no pool gets more than its capacity. If the pools together have less capacity than that,
// each gets its capacity, and a part of the remaining requests in proportion to the rest of its rate: so no pool is overloaded while
// another one has room, and they all become overloaded together. Example: two pools of rate 10, with capacities of 6 and 0, get 8 and 5 of
// 13. If the pools are overloaded, all are by the same part. The result is nil where there is no replica.
//
// The quantile is that of TailOptimal.
func Split(pools []Pool, demand float64, objective Objective, quantile float64) []float64 {
	rate, capacity := 0.0, 0.0
	for i := range pools {
		rate += pools[i].Replicas * pools[i].Replica.Rate
		capacity += pools[i].Replicas * pools[i].Capacity
	}
	switch {
	case rate <= 0:
		return nil
	case capacity > 0 && demand >= capacity && demand < rate:
		parts, rest := make([]float64, len(pools)), (demand-capacity)/(rate-capacity)
		for i := range pools {
			p := &pools[i]
			parts[i] = p.Replicas * (p.Capacity + rest*(p.Replica.Rate-p.Capacity))
		}
		return parts
	case capacity <= 0 || demand >= rate:
		return divided(pools, demand, rate, objective, quantile)
	}
	return bounded(pools, demand, objective, quantile)
}

// bounded divides a rate below the capacity of all pools. Pools that would get more than their capacity get just that, and the others the rest.
func bounded(pools []Pool, demand float64, objective Objective, quantile float64) []float64 {
	parts, open := make([]float64, len(pools)), slices.Clone(pools)
	for {
		rate, rest := 0.0, demand
		for i := range open {
			rate += open[i].Replicas * open[i].Replica.Rate
			rest -= parts[i]
		}
		if rate <= 0 || rest <= 0 {
			return parts
		}
		isFull := false
		again := divided(open, rest, rate, objective, quantile)
		for i, p := range again {
			if most := open[i].Replicas * open[i].Capacity; open[i].Replicas > 0 && p > most*(1+1e-9) {
				parts[i], isFull = most, true
				open[i].Replicas = 0
			}
		}
		if !isFull {
			for i, p := range again {
				parts[i] += p
			}
			return parts
		}
	}
}

// divided divides a rate by the objective alone.
func divided(pools []Pool, demand, rate float64, objective Objective, quantile float64) []float64 {
	switch {
	case demand >= rate*nearlyFull || objective == Proportional:
		return proportional(pools, demand, rate)
	case objective == MeanOptimal:
		return equalised(pools, demand, func(r *Replica, arrivals, level float64) bool { return marginal(r, arrivals) < level })
	}
	return equalised(pools, demand, func(r *Replica, arrivals, level float64) bool {
		l, _ := r.At(arrivals)
		return l.tail(level) < 1-quantile
	})
}

// nearlyFull is how busy pools may be for a division by their latency, which has no bound beyond.
const nearlyFull = .9999

func proportional(pools []Pool, demand, rate float64) []float64 {
	parts := make([]float64, len(pools))
	for i := range pools {
		parts[i] = demand * pools[i].Replicas * pools[i].Replica.Rate / rate
	}
	return parts
}

// marginal returns by how much the sum of all latencies grows with the rate of arrivals.
func marginal(r *Replica, arrivals float64) float64 {
	step := min(r.Rate*1e-5, (r.Rate-arrivals)/4)
	sum := func(x float64) float64 {
		l, _ := r.At(x)
		return x * l.mean()
	}
	below := max(0, arrivals-step)
	return (sum(arrivals+step) - sum(below)) / (arrivals + step - below)
}

// equalised returns the division at which a measure, which grows with the rate of arrivals at a replica, is the same in all pools
// that get requests. The others have a higher one without any. The function below reports whether the measure is below a level.
func equalised(pools []Pool, demand float64, below func(r *Replica, arrivals, level float64) bool) []float64 {
	// arrivals at a replica are between those at a lower and at a higher level.
	arrivals := func(i int, level, low, high float64) float64 {
		r := &pools[i].Replica
		if low == 0 && !below(r, 0, level) {
			return 0
		}
		for high-low > sameArrivals*r.Rate {
			if mid := (low + high) / 2; below(r, mid, level) {
				low = mid
			} else {
				high = mid
			}
		}
		return low
	}
	fill := func(level float64, less, more []float64) (parts []float64, sum float64) {
		parts = make([]float64, len(pools))
		for i := range pools {
			if n := pools[i].Replicas; n > 0 {
				parts[i] = n * arrivals(i, level, less[i]/n, more[i]/n+sameArrivals*pools[i].Replica.Rate)
			}
			sum += parts[i]
		}
		return parts, sum
	}
	none, all := make([]float64, len(pools)), make([]float64, len(pools))
	for i := range pools {
		all[i] = pools[i].Replicas * pools[i].Replica.Rate * (1 - 1e-9)
	}
	less, reached := fill(0, none, all)
	low, high := 0.0, 1e-6
	more, reaches := fill(high, less, all)
	for ; reaches < demand && high < math.MaxFloat64/4; more, reaches = fill(high, less, all) {
		less, reached, low, high = more, reaches, high, 2*high
	}
	for range 45 {
		if reaches-reached <= sameArrivals*demand {
			break
		}
		mid := (low + high) / 2
		if parts, sum := fill(mid, less, more); sum < demand {
			less, reached, low = parts, sum, mid
		} else {
			more, reaches, high = parts, sum, mid
		}
	}
	// If latency hardly depends on the arrivals, the two levels have unlike divisions. All between them are as good.
	for i := range less {
		if reaches > reached {
			less[i] += (demand - reached) / (reaches - reached) * (more[i] - less[i])
		}
	}
	return less
}

// sameArrivals is the part of a rate by which two rates of arrivals are one: less than any weight tells apart. Less costs more steps.
const sameArrivals = 1e-11

// Integers returns whole weights in proportion to parts, with the sum total: the largest remainders are rounded up, the first of
// equal ones. A part reaches 0 has a weight of at least 1 where total allows that. The result is nil where all parts are 0.
func Integers(parts []float64, total int) []int {
	sum, some := 0.0, 0
	for _, p := range parts {
		if sum += p; p > 0 {
			some++
		}
	}
	if !(sum > 0) {
		return nil
	}
	weights, left := make([]int, len(parts)), total
	rest := make([]float64, len(parts))
	for i, p := range parts {
		exact := p / sum * float64(total)
		weights[i] = int(exact)
		if p > 0 && weights[i] == 0 && some <= total {
			weights[i] = 1
		}
		rest[i] = exact - float64(weights[i])
		left -= weights[i]
	}
	for ; left != 0; left -= sign(left) {
		at := 0
		for i := range rest {
			if left > 0 && rest[i] > rest[at] || left < 0 && weights[i] > 1 && (weights[at] <= 1 || rest[i] < rest[at]) {
				at = i
			}
		}
		weights[at] += sign(left)
		rest[at] -= float64(sign(left))
	}
	return weights
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}
