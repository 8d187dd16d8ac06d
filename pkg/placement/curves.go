package placement

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// With returns the curves and prices of both tables. If both have a curve of a workload on a model, or a price, the one
// of t counts.
func (t *Rates) With(more *Rates) *Rates {
	switch {
	case t == nil:
		return more
	case more == nil:
		return t
	}
	both := &Rates{
		profiles: slices.Concat(t.profiles, more.profiles), curves: slices.Clone(t.curves), prices: maps.Clone(more.prices),
	}
	slices.Sort(both.profiles)
	both.profiles = slices.Compact(both.profiles)
	maps.Copy(both.prices, t.prices)
	for i := range more.curves {
		if c := &more.curves[i]; t.curve(c.profile, c.model) == nil {
			both.curves = append(both.curves, *c)
		}
	}
	slices.SortFunc(both.curves, func(a, b curve) int {
		return cmp.Or(cmp.Compare(a.profile, b.profile), cmp.Compare(a.model, b.model))
	})
	return both
}

// Worth returns the rate of a workload on a share of a model ÷ the price of the share, which is its part of the
// device's price. The result is 0 without a curve. Example: 40 on half a device that costs 2 are worth 40.
func (t *Rates) Worth(profile, model string, share vgpu.MilliGPU) float64 {
	rate := t.At(profile, model, share)
	if rate == 0 {
		return 0
	}
	return float64(rate) / (float64(t.prices[model]) * float64(share) / float64(vgpu.WholeGPU))
}
