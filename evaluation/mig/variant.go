package mig

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Rate is requests per second, in millionths.
type Rate int64

// Bounds of demands, so that sums and products stay within 64 bits.
const (
	MaxRate Rate          = 1_000_000_000_000_000 // 10⁹ requests per second
	MaxSLO  time.Duration = 1000 * time.Hour
)

// Variant is a measured way to serve a model.
type Variant struct {
	// Slices of its own MIG instance.
	Slices Slices
	// Batch is how many requests a process answers together, Processes how many batches run at once.
	Batch, Processes int
	// Rate of all processes together, from 1 to MaxRate.
	Rate Rate
	// Latency of a batch, above 0.
	Latency time.Duration
}

// Demand is a model with the rate that its replicas must serve.
type Demand struct {
	// Model names it; each demand has its own.
	Model string
	// Rate of requests, from 1 to MaxRate.
	Rate Rate
	// SLO is the longest time of a request from its arrival to its answer, from 1 ns to MaxSLO.
	SLO time.Duration
	// Variants to choose from, in any order.
	Variants []Variant
}

// Refusal says why there is no plan for a model: no variant is fast enough.
type Refusal struct {
	Model string
	// Limit is the longest time of a batch.
	Limit time.Duration
	// Fastest is the least latency of all variants, 0 if there are none.
	Fastest time.Duration
}

// Why describes the refusal without the model: "the fastest batch takes 13ms, above 10ms".
func (r Refusal) Why() string {
	if r.Fastest == 0 {
		return "no variant is known"
	}
	return fmt.Sprintf("the fastest batch takes %v, above %v", r.Fastest, r.Limit)
}

// Limit returns the longest time of a batch under an SLO, which is permille thousandths of it, rounded down.
//
// A request that arrives just after the start of a batch waits for its end and then for its own batch. A batch of more
// than half of the SLO therefore breaks it. Example: of 167 ms, 450 thousandths are 75.15 ms.
func Limit(slo time.Duration, permille int) time.Duration {
	return slo * time.Duration(permille) / 1000
}

func (d *Demand) validate() error {
	switch {
	case d.Model == "":
		return fmt.Errorf("it has no name")
	case d.Rate < 1 || d.Rate > MaxRate:
		return fmt.Errorf("rate %d must be from 1 to %d", d.Rate, MaxRate)
	case d.SLO < 1 || d.SLO > MaxSLO:
		return fmt.Errorf("SLO %v must be from %v to %v", d.SLO, time.Duration(1), MaxSLO)
	}
	for _, v := range d.Variants {
		if err := v.validate(); err != nil {
			return fmt.Errorf("variant %+v: %w", v, err)
		}
	}
	return nil
}

func (v *Variant) validate() error {
	switch {
	case v.Slices.index() < 0:
		return v.Slices.illegal()
	case v.Batch < 1 || v.Processes < 1:
		return fmt.Errorf("batch and processes must be at least 1")
	case v.Rate < 1 || v.Rate > MaxRate:
		return fmt.Errorf("rate %d must be from 1 to %d", v.Rate, MaxRate)
	case v.Latency < 1:
		return fmt.Errorf("latency %v must be above 0", v.Latency)
	}
	return nil
}

// usableVariants are the variants of a model that are worth choosing, by size. Each is the one with the highest rate
// within the limit, nil where a smaller size has as high a rate. So rates rise with the sizes.
type usableVariants [len(sizes)]*Variant

// usableOf returns the usable variants of a demand, or a refusal where there are none.
func usableOf(d *Demand, limit time.Duration) (usableVariants, *Refusal) {
	var best usableVariants
	fastest, found := time.Duration(math.MaxInt64), false
	for i := range d.Variants {
		v := &d.Variants[i]
		fastest = min(fastest, v.Latency)
		if v.Latency > limit {
			continue
		}
		found = true
		if at := &best[v.Slices.index()]; *at == nil || compareVariants(v, *at) < 0 {
			*at = v
		}
	}
	if !found {
		if len(d.Variants) == 0 {
			fastest = 0
		}
		return best, &Refusal{Model: d.Model, Limit: limit, Fastest: fastest}
	}
	reached := Rate(0)
	for i, v := range best {
		if v == nil {
			continue
		}
		if v.Rate <= reached {
			best[i] = nil
		}
		reached = max(reached, v.Rate)
	}
	return best, nil
}

// compareVariants orders variants of one size: the highest rate, then the least latency, the smallest batch, the fewest
// processes.
func compareVariants(a, b *Variant) int {
	return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Latency, b.Latency), cmp.Compare(a.Batch, b.Batch),
		cmp.Compare(a.Processes, b.Processes))
}

// rate returns the rate of the instances together.
func (o *usableVariants) rate(n counts) Rate {
	sum := Rate(0)
	for s, v := range o {
		if v != nil {
			sum += Rate(n[s]) * v.Rate
		}
	}
	return sum
}

// known returns the sizes with a usable variant, from the largest.
func (o *usableVariants) known() []int {
	var all []int
	for s, v := range o {
		if v != nil {
			all = append(all, s)
		}
	}
	slices.Reverse(all)
	return all
}
