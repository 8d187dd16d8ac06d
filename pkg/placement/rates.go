package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Rate is work per time, in millionths of the unit of a workload's throughputs (steps a second, say).
type Rate int64

// Bounds of what Rates takes, so that sums and products stay within 64 bits.
const (
	MaxRate  Rate          = 1_000_000_000_000_000_000 // 10¹² units
	MaxPrice int64         = 1_000_000_000_000         // a million units
	maxShare vgpu.MilliGPU = 128 * vgpu.WholeGPU       // the devices of the largest node
)

// Throughput is one point of the curve of a workload on one GPU model.
type Throughput struct {
	// Profile names the workload.
	Profile string
	// Model is the product name of the devices.
	Model string
	// Share of such devices, from 1 to 128 devices.
	Share vgpu.MilliGPU
	// Rate that the workload reaches on the share, from 1 to MaxRate.
	Rate Rate
}

// Rates holds the rates that workloads reach on shares of GPU models, and the prices of the models. Rates are
// immutable; nil has no workload.
//
// A curve starts at no share with no rate, is linear between its points and ends at the last point, without a promise
// beyond it. From nothing to the first point a straight line is the careful guess, since a small share usually reaches
// more than its part.
type Rates struct {
	profiles []string // sorted
	curves   []curve  // by profile, then model
	prices   map[string]int64
}

// curve is the throughput of one workload on one model.
type curve struct {
	profile, model string
	points         []Throughput // by share; rates do not fall
}

// NewRates builds the table. Prices are per whole device of a model and time, from 1 to MaxPrice, in any unit. Every
// model with a throughput needs a price. The order of the points does not matter. The error names what is wrong: an
// amount out of range, two points for one share, a curve that falls, a model without a price.
func NewRates(points []Throughput, prices map[string]int64) (*Rates, error) {
	points = slices.Clone(points)
	slices.SortFunc(points, func(a, b Throughput) int {
		return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Share, b.Share),
			cmp.Compare(a.Rate, b.Rate))
	})
	t := &Rates{prices: maps.Clone(prices)}
	for i := range points {
		p := &points[i]
		if err := p.validate(prices); err != nil {
			return nil, fmt.Errorf("read throughput of profile %q on model %q at %v: %w", p.Profile, p.Model, p.Share, err)
		}
		c := t.last()
		if c == nil || c.profile != p.Profile || c.model != p.Model {
			t.curves = append(t.curves, curve{profile: p.Profile, model: p.Model})
			c = t.last()
		} else if before := c.points[len(c.points)-1]; before.Share == p.Share || before.Rate > p.Rate {
			return nil, fmt.Errorf("read throughput of profile %q on model %q at %v: rate %v follows rate %v at %v",
				p.Profile, p.Model, p.Share, p.Rate, before.Rate, before.Share)
		}
		c.points = append(c.points, *p)
		t.profiles = append(t.profiles, p.Profile)
	}
	t.profiles = slices.Compact(t.profiles)
	return t, nil
}

func (t *Rates) last() *curve {
	if len(t.curves) == 0 {
		return nil
	}
	return &t.curves[len(t.curves)-1]
}

func (p *Throughput) validate(prices map[string]int64) error {
	price, priced := prices[p.Model]
	switch {
	case p.Profile == "" || p.Model == "":
		return fmt.Errorf("it names no profile or no model")
	case p.Share < 1 || p.Share > maxShare:
		return fmt.Errorf("the share must be from %v to %v", vgpu.MilliGPU(1), maxShare)
	case p.Rate < 1 || p.Rate > MaxRate:
		return fmt.Errorf("rate %v must be from %v to %v", p.Rate, Rate(1), MaxRate)
	case !priced:
		return fmt.Errorf("the model has no price")
	case price < 1 || price > MaxPrice:
		return fmt.Errorf("the price %d of the model must be from 1 to %d", price, MaxPrice)
	}
	return nil
}

// Knows reports whether a workload has throughputs, on any model.
func (t *Rates) Knows(profile string) bool {
	if t == nil {
		return false
	}
	_, known := slices.BinarySearch(t.profiles, profile)
	return known
}

// Share returns the least share of a model on which a workload reaches a rate above 0, and false where no point
// promises the rate. Example: with 40 at 500 and 60 at 1000, a rate of 50 takes 750, a rate of 20 takes 250.
func (t *Rates) Share(profile, model string, want Rate) (vgpu.MilliGPU, bool) {
	c := t.curve(profile, model)
	if c == nil || c.end().Rate < want {
		return 0, false
	}
	return c.share(want), true
}

// At returns the rate of a workload on a share of a model, rounded down to a millionth. For shares beyond the curve it
// returns the last rate, 0 where there is no curve.
func (t *Rates) At(profile, model string, share vgpu.MilliGPU) Rate {
	if c := t.curve(profile, model); c != nil {
		return c.at(share)
	}
	return 0
}

// Has reports whether there is a curve of a workload on a model.
func (t *Rates) Has(profile, model string) bool { return t.curve(profile, model) != nil }

func (t *Rates) curve(profile, model string) *curve {
	if t == nil {
		return nil
	}
	for i := range t.curves {
		if t.curves[i].profile == profile && t.curves[i].model == model {
			return &t.curves[i]
		}
	}
	return nil
}

// most returns the last point.
func (c *curve) end() Throughput { return c.points[len(c.points)-1] }

// share returns the least share that reaches a rate above 0 which the last point reaches.
func (c *curve) share(want Rate) vgpu.MilliGPU {
	i := slices.IndexFunc(c.points, func(p Throughput) bool { return p.Rate >= want })
	var from Throughput
	if i > 0 {
		from = c.points[i-1]
	}
	to := c.points[i]
	part, exact := mulDiv(int64(want-from.Rate), int64(to.Share-from.Share), int64(to.Rate-from.Rate))
	if !exact {
		part++
	}
	return from.Share + vgpu.MilliGPU(part)
}

// at returns the rate on a share.
func (c *curve) at(share vgpu.MilliGPU) Rate {
	i := slices.IndexFunc(c.points, func(p Throughput) bool { return p.Share >= share })
	if i < 0 {
		return c.end().Rate
	}
	var from Throughput
	if i > 0 {
		from = c.points[i-1]
	}
	to := c.points[i]
	part, _ := mulDiv(int64(share-from.Share), int64(to.Rate-from.Rate), int64(to.Share-from.Share))
	return from.Rate + Rate(part)
}

// mulDiv returns a·b/c rounded down, and whether that is exact, for 0 ≤ a ≤ c < 2⁶¹ and b ≥ 0. The product may exceed
// 64 bits, so that the division goes bit by bit.
func mulDiv(a, b, c int64) (quotient int64, exact bool) {
	rest := int64(0)
	for bit := 62; bit >= 0; bit-- {
		quotient, rest = 2*quotient, 2*rest
		if b>>bit&1 == 1 {
			rest += a
		}
		quotient, rest = quotient+rest/c, rest%c
	}
	return quotient, rest == 0
}
