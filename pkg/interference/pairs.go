package interference

import (
	"cmp"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Pairs holds what the traits do not explain of the speeds of one workload beside single others. Pairs are immutable;
// nil stands for a workload without observations.
type Pairs struct{ list []packed }

// pair is a workload beside another.
type pair struct {
	beside Workload
	// rest is the unexplained part of the logarithm of the speed, and doubt the remaining part of the doubt about it.
	rest, doubt float64
}

// packed is a pair in eight bytes.
type packed struct {
	beside Workload
	rest   int16
	doubt  uint16
}

const (
	restSteps  = math.MaxInt16 / mostRest
	doubtSteps = math.MaxUint16
)

func (p *pair) pack() packed {
	return packed{p.beside, int16(math.Round(p.rest * restSteps)), uint16(math.Round(p.doubt * doubtSteps))}
}

func (p *packed) unpack() pair {
	return pair{p.beside, float64(p.rest) / restSteps, float64(p.doubt) / doubtSteps}
}

// widenings is how many rounds widen the scatter of pairs that are far off. More rounds converge further.
const widenings = 4

// mostRest bounds the rest of a pair, as a logarithm: a factor of 1.65, which is five standard errors. Without a bound
// a workload could report speeds that keep one neighbour away. A larger bound lets one workload report more about one
// neighbour; a smaller one ignores pairs that are truly far from their traits.
const mostRest = .5

// of returns the rest beside a workload and the remaining doubt about it: 0 and 1 for an unobserved pair.
func (p *Pairs) of(w Workload) (rest, doubt float64) {
	if p == nil || w == 0 {
		return 0, 1
	}
	for i := range p.list {
		if p.list[i].beside >= w {
			if p.list[i].beside == w {
				found := p.list[i].unpack()
				return found.rest, found.doubt
			}
			break
		}
	}
	return 0, 1
}

// pair computes the rests of an entry beside each of its neighbours, and the certainty of its traits. For both, pairs
// may differ by all of their scatter. The results are the sum of the squares of the known rests, and their number. An
// erratic workload counts less.
func (b *Book) pair(e *entry) (squares, count float64) {
	g, before := &b.ridge, b.beliefs(e)
	g.open(b, e)
	for range widenings {
		g.weigh(&e.traits, true)
		g.widen()
	}
	g.weigh(&e.traits, true)
	g.doubts(math.Exp(e.traits.Sensitivity), &before)
	e.traits.SureOffset, e.traits.SureSensitivity = sure(g.offset, e.unsureOffset()), sure(g.sensitivity, e.unsureTrait())
	b.rests = b.rests[:0]
	for _, r := range g.rows[:g.n] {
		for _, w := range r.beside[:r.neighbours()] {
			if slices.ContainsFunc(b.rests, func(p pair) bool { return p.beside == w }) {
				continue
			}
			_, mine := b.load(e, r, w)
			rest, variance, doubt := g.pair(&e.traits, w, mine/r.times(w))
			b.rests = append(b.rests, pair{w, bound(rest, mostRest), doubt})
			weight := 1 / (e.erratic * e.erratic)
			squares += weight * (min(rest*rest, farthestRest) + variance) / g.wide[slices.Index(g.names, w)]
			count += weight
		}
	}
	b.addPastPairs(e)
	if e.pairs = nil; len(b.rests) > 0 {
		list := make([]packed, len(b.rests))
		for i := range list {
			list[i] = b.rests[i].pack()
		}
		slices.SortFunc(list, func(x, y packed) int { return cmp.Compare(x.beside, y.beside) })
		e.pairs = &Pairs{list}
	}
	return squares, count
}

// maxPastPairs is how many pairs without a row the book keeps of a workload. A larger number costs 20 bytes each.
const maxPastPairs = 16

// pastPair is the speed of a workload beside one other, from rows that are gone.
type pastPair struct {
	beside Workload
	log    float32
	// doubt is the remaining part of the doubt. The caps are those of the workload and of the other one.
	doubt     uint8
	self, cap uint8 // percent
}

// pastDoubtSteps is a doubt of 1 in a pastPair.
const pastDoubtSteps = math.MaxUint8

// percentOf returns a cap as a pastPair keeps it, at least 1 % of the SMs.
func percentOf(part vgpu.MilliGPU) uint8 {
	return uint8((part*100 + vgpu.WholeGPU - 1) / vgpu.WholeGPU)
}

// partOf returns the cap of a row from its percent.
func partOf(percent uint8) uint16 { return uint16(vgpu.MilliGPU(percent) * vgpu.WholeGPU / 100) }

// keepPastPairs keeps the pairs of a row that another row replaces, for neighbours without another row. The scheduler
// avoids a bad pair, and so its row is the first to go. The book keeps the speed and not the rest, since the traits
// behind a rest change.
func (b *Book) keepPastPairs(e *entry, at int) {
	old := &e.rows[at]
	for i, w := range old.beside[:old.neighbours()] {
		if slices.Contains(old.beside[:i], w) || e.hasOtherRow(at, w) {
			continue
		}
		rest, doubt := e.pairs.of(w)
		if rest == 0 && doubt == 1 {
			continue // not computed yet
		}
		s := pastPair{beside: w, doubt: uint8(math.Ceil(doubt * pastDoubtSteps)), self: percentOf(old.self()), cap: percentOf(vgpu.MilliGPU(old.caps[i]))}
		s.log = float32(b.expectedBeside(e, &s) + rest)
		e.pastPairs = slices.DeleteFunc(e.pastPairs, func(s pastPair) bool { return s.beside == w })
		if len(e.pastPairs) >= maxPastPairs {
			e.pastPairs = slices.Delete(e.pastPairs, 0, 1)
		}
		e.pastPairs = append(e.pastPairs, s)
	}
}

// hasOtherRow reports whether another row has a neighbour.
func (e *entry) hasOtherRow(at int, w Workload) bool {
	for i := range e.rows {
		if i != at && e.rows[i].count > 0 && e.rows[i].times(w) > 0 {
			return true
		}
	}
	return false
}

// expectedBeside returns what the traits predict for a workload beside the other one of a pair, as a logarithm.
func (b *Book) expectedBeside(e *entry, s *pastPair) float64 {
	r := row{beside: [MaxBeside]Workload{s.beside}}
	r.caps[0], r.caps[MaxBeside] = partOf(s.cap), partOf(s.self)
	load, _ := b.load(e, &r, 0)
	return e.traits.Offset - math.Exp(e.traits.Sensitivity)*load
}

// addPastPairs adds the past pairs without a row.
func (b *Book) addPastPairs(e *entry) {
	rows := len(b.rests)
	for i := range e.pastPairs {
		s := &e.pastPairs[i]
		hasRow := slices.ContainsFunc(b.rests[:rows], func(p pair) bool { return p.beside == s.beside })
		if !hasRow && b.known[entryKey{e.key.gpu, s.beside}] != nil {
			b.rests = append(b.rests, pair{s.beside, bound(float64(s.log)-b.expectedBeside(e, s), mostRest), float64(s.doubt) / pastDoubtSteps})
		}
	}
}

// neighbours returns the number of neighbours in the row.
func (r *row) neighbours() int {
	n := 0
	for n < MaxBeside && r.beside[n] != 0 {
		n++
	}
	return n
}
