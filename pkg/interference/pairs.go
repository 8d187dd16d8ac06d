package interference

import (
	"cmp"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Pairs is what is left of the speeds of one workload beside single others when its traits and theirs have explained what
// they can. It does not change; nil is of a workload that was never observed.
type Pairs struct{ list []packed }

// pair is a workload beside another.
type pair struct {
	beside Workload
	// rest is what is left of the logarithm of the speed, and doubt the part of the doubt about it that is left.
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

// widenings is how often the scatters of pairs that are far off are taken larger before the rests are believed.
const widenings = 4

// mostRest bounds the rest of a pair, as a logarithm: a factor of 1.65, which is five standard errors. Without a bound a workload
// could report speeds that keep one neighbour away. Larger believes more of what one workload says of one neighbour; smaller
// forgets pairs that are truly far from what traits explain.
const mostRest = .5

// of returns the rest and the doubt about it that is left beside a workload: 0 and 1 where the two were not observed.
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

// pair finds what is left of the rows of an entry beside each of its neighbours, and how sure its traits are: for both,
// pairs may differ by all of their scatter. It returns the sum of the squares of the rests, as far as they are known, and
// their number; those of a workload that contradicts itself count less.
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
	b.keep(e)
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

// maxSights is how many pairs of a workload are remembered of which no row tells any more. More costs 20 bytes each.
const maxSights = 16

// sight is how fast a workload was beside another one alone, as far as rows told that are gone.
type sight struct {
	beside Workload
	log    float32
	// doubt is the part that was left of it. The caps are those of the workload and of the other one.
	doubt     uint8
	self, cap uint8 // percent
}

// sightDoubt is a doubt of 1 in a sight.
const sightDoubt = math.MaxUint8

// percentOf returns a cap as a sight keeps it, at least 1 % of the SMs.
func percentOf(part vgpu.MilliGPU) uint8 {
	return uint8((part*100 + vgpu.WholeGPU - 1) / vgpu.WholeGPU)
}

// partOf returns the cap of a row that so many percent are.
func partOf(percent uint8) uint16 { return uint16(vgpu.MilliGPU(percent) * vgpu.WholeGPU / 100) }

// part remembers what a row told that makes room for another, of the neighbours of which no other row tells: a bad pair is
// avoided, and so its row is the first to go. The speed is remembered and not the rest, which would be one of traits that move.
func (b *Book) part(e *entry, at int) {
	old := &e.rows[at]
	for i, w := range old.beside[:old.neighbours()] {
		if slices.Contains(old.beside[:i], w) || e.others(at, w) {
			continue
		}
		rest, doubt := e.pairs.of(w)
		if rest == 0 && doubt == 1 {
			continue // not worked out yet
		}
		s := sight{beside: w, doubt: uint8(math.Ceil(doubt * sightDoubt)), self: percentOf(old.self()), cap: percentOf(vgpu.MilliGPU(old.caps[i]))}
		s.log = float32(b.alone(e, &s) + rest)
		e.sights = slices.DeleteFunc(e.sights, func(s sight) bool { return s.beside == w })
		if len(e.sights) >= maxSights {
			e.sights = slices.Delete(e.sights, 0, 1)
		}
		e.sights = append(e.sights, s)
	}
}

// others says whether a row other than this one tells of a neighbour.
func (e *entry) others(at int, w Workload) bool {
	for i := range e.rows {
		if i != at && e.rows[i].count > 0 && e.rows[i].times(w) > 0 {
			return true
		}
	}
	return false
}

// alone returns what traits let expect of a workload beside the other one of a pair, as a logarithm.
func (b *Book) alone(e *entry, s *sight) float64 {
	r := row{beside: [MaxBeside]Workload{s.beside}}
	r.caps[0], r.caps[MaxBeside] = partOf(s.cap), partOf(s.self)
	load, _ := b.load(e, &r, 0)
	return e.traits.Offset - math.Exp(e.traits.Sensitivity)*load
}

// keep adds what was known of pairs of which no row tells any more.
func (b *Book) keep(e *entry) {
	rows := len(b.rests)
	for i := range e.sights {
		s := &e.sights[i]
		told := slices.ContainsFunc(b.rests[:rows], func(p pair) bool { return p.beside == s.beside })
		if !told && b.known[entryKey{e.key.gpu, s.beside}] != nil {
			b.rests = append(b.rests, pair{s.beside, bound(float64(s.log)-b.alone(e, s), mostRest), float64(s.doubt) / sightDoubt})
		}
	}
}

// neighbours returns their number.
func (r *row) neighbours() int {
	n := 0
	for n < MaxBeside && r.beside[n] != 0 {
		n++
	}
	return n
}
