package bound

import (
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// aggregate is the bound by the devices and the demand alone.
func (f *fill) aggregate() float64 {
	best := make([]float64, len(f.demand))
	devices := 0
	for t := range f.types {
		devices += f.types[t].count * f.types[t].devices
		for i := range f.types[t].items {
			best[f.types[t].items[i].kind] = max(best[f.types[t].items[i].kind], f.types[t].items[i].value)
		}
	}
	sum := 0.
	for k, d := range f.demand {
		sum += best[k] * float64(d)
	}
	return min(sum, float64(vgpu.WholeGPU)*float64(devices))
}

// priced is what a pricing found for one type of nodes.
type priced struct {
	// upper is not below what any pattern gains at the prices of its pods.
	upper float64
	// best is a pattern that gains more than the floor, nil where the search found none.
	best *pattern
	cut  bool
}

// pricing searches the pattern of one node that gains most: the value of its pods less their prices.
//
// CPU, host memory and device memory have prices too (Lagrange): with these the devices of the node no longer depend on
// each other, and a knapsack for one device bounds all. The search follows only what the bound allows.
type pricing struct {
	t *nodeType
	// items that gain anything, gains of each, and their worth: the gain less the price of the resources.
	items       []*item
	gains, net  []float64
	unit, units int
	prices      amounts
	// device[u] is the most net worth of u units of one device; node[g] that of g devices.
	device, node []float64
	from         []int // the item that device[u] takes, −1 for none
	wide         []int // that node[g] takes, −1 for a device of its own
}

// price searches the best pattern of a type. It looks only for gains above the floor.
func (f *fill) price(t int, kinds []float64, floor float64) priced {
	p := &pricing{t: &f.types[t], prices: f.types[t].prices}
	for i := range p.t.items {
		it := &p.t.items[i]
		if g := it.value - max(0, kinds[it.kind]); g > 0 {
			p.items, p.gains = append(p.items, it), append(p.gains, g)
		}
	}
	if len(p.items) == 0 {
		return priced{}
	}
	p.unit = p.t.unit()
	p.units = p.t.slots / p.unit
	p.net = make([]float64, len(p.items))
	p.device, p.from = make([]float64, p.units+1), make([]int, p.units+1)
	p.node, p.wide = make([]float64, p.t.devices+1), make([]int, p.t.devices+1)
	upper := p.relax(floor)
	p.t.prices = p.prices
	if upper <= floor {
		return priced{upper: upper}
	}
	s := search{pricing: p, floor: floor, limits: f.limits}
	s.run()
	out := priced{upper: upper, cut: s.cut}
	if !s.cut {
		out.upper = min(upper, s.floor)
	}
	if s.best != nil {
		out.best = newPattern(t, s.best)
	}
	return out
}

// steps of the subgradient method: more of them bring the prices of the resources nearer to the best.
const steps = 80

// relax looks for prices of the resources with a low bound, and ends early with one below the floor. It leaves the best
// prices and their tables behind.
func (p *pricing) relax(floor float64) float64 {
	best, at, scale := math.Inf(1), p.prices, 1.
	since := 0
	for range steps {
		bound, used := p.evaluate()
		if bound < best-1e-9 {
			best, at, since = bound, p.prices, 0
		} else if since++; since == 5 {
			scale, since = scale/2, 0
			p.prices = at
		}
		if best <= floor {
			break
		}
		square := 0.
		for i := range used {
			if slope := 1 - used[i]; p.prices[i] > 0 || slope < 0 {
				square += slope * slope
			}
		}
		if square == 0 {
			break
		}
		for i := range used {
			p.prices[i] = max(0, p.prices[i]-scale*(bound-floor)*(1-used[i])/square)
		}
	}
	p.prices = at
	p.evaluate()
	return best
}

// evaluate fills the tables at the prices, and returns the bound and what its solution takes of the resources.
func (p *pricing) evaluate() (bound float64, used amounts) {
	bySize := make([]int, p.units+1)
	byWidth := make([]int, p.t.devices+1)
	for i, it := range p.items {
		p.net[i] = p.gains[i] - it.needs.times(p.prices)
		best := &byWidth[it.width]
		if it.width == 1 {
			best = &bySize[it.slots/p.unit]
		}
		if p.net[i] > 0 && (*best == 0 || p.net[i] > p.net[*best-1]) {
			*best = i + 1
		}
	}
	p.fillDevice(bySize)
	p.fillNode(byWidth)
	for g := p.t.devices; g > 0; {
		if i := p.wide[g]; i >= 0 {
			used = used.plus(p.items[i].needs)
			g -= p.items[i].width
			continue
		}
		for u := p.units; u > 0; {
			i := p.from[u]
			if i < 0 {
				u--
				continue
			}
			used = used.plus(p.items[i].needs)
			u -= p.items[i].slots / p.unit
		}
		g--
	}
	return p.node[p.t.devices] + amounts{}.rest(p.prices), used
}

// fillDevice computes the knapsack of one device, with the best item of each size, or none (0).
func (p *pricing) fillDevice(bySize []int) {
	sizes := make([]int, 0, len(bySize))
	for size, i := range bySize {
		if i > 0 {
			sizes = append(sizes, size)
		}
	}
	for u := 1; u <= p.units; u++ {
		p.device[u], p.from[u] = p.device[u-1], -1
		for _, size := range sizes {
			if size > u {
				break
			}
			i := bySize[size] - 1
			if x := p.device[u-size] + p.net[i]; x > p.device[u] {
				p.device[u], p.from[u] = x, i
			}
		}
	}
}

// fillNode computes the best use of several devices, each by itself or together for a wide item.
func (p *pricing) fillNode(byWidth []int) {
	for g := 1; g <= p.t.devices; g++ {
		p.node[g], p.wide[g] = p.node[g-1]+p.device[p.units], -1
		for w := 2; w <= g; w++ {
			i := byWidth[w] - 1
			if i < 0 {
				continue
			}
			if x := p.node[g-w] + p.net[i]; x > p.node[g] {
				p.node[g], p.wide[g] = x, i
			}
		}
	}
}

// newPattern counts the items of a node by kind.
func newPattern(t int, groups [][]*item) *pattern {
	out := &pattern{nodeType: t, groups: groups}
	var kinds []int
	for _, group := range groups {
		for _, it := range group {
			out.value += it.value
			kinds = append(kinds, it.kind)
		}
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		if n := len(out.kinds); n > 0 && out.kinds[n-1] == k {
			out.counts[n-1]++
			continue
		}
		out.kinds, out.counts = append(out.kinds, k), append(out.counts, 1)
	}
	return out
}
