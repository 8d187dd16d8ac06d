package bound

import (
	"cmp"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// pattern is a multiset of pods that one node of a type can hold.
type pattern struct {
	nodeType int
	// kinds and how many pods of each, in the order of the kinds.
	kinds, counts []int
	value         float64
	// groups are the pods as they lie on the devices: those that share a device, or one that has several.
	groups [][]*item
}

// master is the linear programme over the patterns that are known so far, by the revised simplex method: the most value,
// with no more patterns of a type than nodes and no more pods of a kind than there are. The first rows are types, the
// others kinds. It begins with nothing placed, so that it needs no first phase. Rounding errors cannot make the bound
// wrong: generate computes it for whatever prices come out here.
type master struct {
	f        *fill
	patterns []pattern
	// basis has a pattern for each row, or −1−r for what is left of row r. values are how much of it.
	basis   []int
	values  []float64
	inverse [][]float64
	prices  []float64
}

func newMaster(f *fill) *master {
	rows := len(f.types) + len(f.demand)
	m := &master{f: f, basis: make([]int, rows), values: make([]float64, rows), inverse: make([][]float64, rows), prices: make([]float64, rows)}
	for r := range rows {
		m.basis[r], m.inverse[r] = -1-r, make([]float64, rows)
		m.inverse[r][r] = 1
		// The small part, unlike for each row, keeps the simplex method from going round in circles among equal solutions.
		m.values[r] = float64(m.available(r)) * (1 + 1e-9*float64(r+1))
	}
	return m
}

// available is how many nodes or pods a row has.
func (m *master) available(row int) int {
	if row < len(m.f.types) {
		return m.f.types[row].count
	}
	return m.f.demand[row-len(m.f.types)]
}

// gain is what a unit of a pattern is worth above the prices of what it takes.
func (m *master) gain(p *pattern) float64 {
	gain := p.value - m.prices[p.nodeType]
	for i, k := range p.kinds {
		gain -= m.prices[len(m.f.types)+k] * float64(p.counts[i])
	}
	return gain
}

// negligible is a gain, in thousandths of a GPU, that counts as none.
const negligible = 1e-6

// solve finds the best solution with the known patterns.
func (m *master) solve() {
	for range 50 * len(m.basis) {
		enters, best := 0, negligible
		for i := range m.patterns {
			if g := m.gain(&m.patterns[i]); g > best {
				enters, best = i, g
			}
		}
		for r, price := range m.prices {
			if -price > best {
				enters, best = -1-r, -price
			}
		}
		if best <= negligible {
			return
		}
		change := m.change(enters)
		row := m.leaves(change)
		if row < 0 {
			return
		}
		m.pivot(row, enters, best, change)
	}
}

// change returns by how much the values of the basis fall for a unit of what enters.
func (m *master) change(enters int) []float64 {
	out := make([]float64, len(m.basis))
	for r, row := range m.inverse {
		if enters < 0 {
			out[r] = row[-1-enters]
			continue
		}
		p := &m.patterns[enters]
		out[r] = row[p.nodeType]
		for i, k := range p.kinds {
			out[r] += row[len(m.f.types)+k] * float64(p.counts[i])
		}
	}
	return out
}

// pivotal is the least coefficient that a row may be divided by.
const pivotal = 1e-9

// leaves returns the row whose value is the first to become 0, −1 for none.
func (m *master) leaves(change []float64) int {
	row, least := -1, math.Inf(1)
	for r, c := range change {
		if c <= pivotal {
			continue
		}
		ratio := max(0, m.values[r]) / c
		if ratio < least-1e-13 || ratio <= least+1e-13 && c > change[row] {
			row, least = r, ratio
		}
	}
	return row
}

func (m *master) pivot(row, enters int, gain float64, change []float64) {
	pivot := m.inverse[row]
	by := change[row]
	for j := range pivot {
		pivot[j] /= by
	}
	m.values[row] /= by
	for r, c := range change {
		if r == row || c == 0 {
			continue
		}
		for j, x := range pivot {
			m.inverse[r][j] -= c * x
		}
		m.values[r] -= c * m.values[row]
	}
	for j, x := range pivot {
		m.prices[j] += gain * x
	}
	m.basis[row] = enters
}

// used is a pattern and on how many nodes it is.
type used struct {
	pattern
	nodes float64
}

// solution returns the patterns in use, those of the most nodes first.
func (m *master) solution() []used {
	var all []used
	for r, b := range m.basis {
		if b >= 0 && m.values[r] > 0 {
			all = append(all, used{m.patterns[b], m.values[r]})
		}
	}
	slices.SortStableFunc(all, func(a, b used) int { return cmp.Compare(b.nodes, a.nodes) })
	return all
}

// value is that of the solution.
func (m *master) value() (sum float64) {
	for r, b := range m.basis {
		if b >= 0 {
			sum += m.patterns[b].value * m.values[r]
		}
	}
	return sum
}

const (
	// maxRounds bounds the rounds of generate. The lists of openb need about a hundred; more would lower the bound of a
	// harder cluster.
	maxRounds = 600
	// tolerance is the part of the capacity by which the bound may exceed the best one: 0.002 points.
	tolerance = 2e-5
)

// generate adds patterns that gain at the current prices until there are none, and returns the least bound on the way.
// It reports whether a limit, of the rounds or of a search, kept it from the best one.
func (m *master) generate() (most float64, cut bool) {
	most = m.f.aggregate()
	for range maxRounds {
		m.solve()
		known := len(m.patterns)
		bound, searchCut := m.price()
		most = min(most, raised(bound))
		if most-m.value() <= tolerance*m.f.capacity {
			return most, false
		}
		if len(m.patterns) == known {
			return most, searchCut
		}
	}
	return most, true
}

// price adds the best pattern of each type of nodes, where one gains. It returns the bound by the prices, which holds for
// any prices of the pods: no node gains more than the upper value of its type, and pods earn back at most their prices.
func (m *master) price() (bound float64, cut bool) {
	kinds := m.prices[len(m.f.types):]
	for k, d := range m.f.demand {
		bound += max(0, kinds[k]) * float64(d)
	}
	for t := range m.f.types {
		n := &m.f.types[t]
		slack := tolerance / 4 * float64(vgpu.WholeGPU) * float64(n.devices)
		found := m.f.price(t, kinds, max(0, m.prices[t])+slack)
		bound += found.upper * float64(n.count)
		cut = cut || found.cut
		if found.best != nil {
			m.patterns = append(m.patterns, *found.best)
		}
	}
	return bound, cut
}
