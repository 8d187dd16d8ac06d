package placement

import (
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
)

// Remembering returns the policy with a cache of node losses, for one goroutine that rates many like nodes. The scores
// are the same.
func (p Policy) Remembering() Policy {
	if p.mix != nil {
		p.memo = fragmentation.NewMemo(p.measure)
	}
	return p
}

// Gain returns how many milli-GPU a score of the policy is worth above the lowest rate. The difference of two gains is
// how much more GPU the usual requests keep by the policy's rate. Costs of models, links, ties and the preference for
// devices without neighbours do not count.
//
// Example: tandem rates in steps of 40 milli-GPU, so that scores with the rates 500002 and 500000 differ by 80. packed
// rates a device in parts per million. So a device left with 300 of 1000 free is worth 200 more than one left with 500.
func (p Policy) Gain(score int64) int64 {
	p = p.orDefault()
	rate := score % 1e17 / 1e10
	perMilli := max(1, p.perMilli)
	if p.neighbours == nil {
		return rate * max(1, p.grain) / perMilli
	}
	if rate > rateMax {
		rate -= rateMax + 1
	}
	return rate * p.norm() / (100 * perMilli)
}

// norm divides the weighed losses, so that their sum stays in the range of rates.
func (p *Policy) norm() int64 {
	w := p.neighbours.Weights
	norm := max(100, w.Fragmentation, w.Interference, w.Heterogeneity)
	if p.neutral == 0 {
		norm *= 2
	}
	return norm
}
