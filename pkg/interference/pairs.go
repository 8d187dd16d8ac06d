package interference

import (
	"cmp"
	"math"
	"slices"
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

const (
	// varianceOfRest is that of what is left of a pair, before any co-run: on Lucid, pairs differ by about 6 % from what
	// traits explain. Larger believes single observations, smaller forgets what was seen of this very pair.
	varianceOfRest = .0036
	// mostRest bounds what is left, so that nobody talks one neighbour away: three standard errors.
	mostRest = .18
	// maxPairs is how many neighbours are remembered for a workload. Each costs 8 bytes.
	maxPairs = 24
)

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

// pair finds what is left of the rows of an entry. Where a row has several neighbours, each takes its part by how much
// doubt there was about it, the rows with one neighbour first: they tell of nobody else. Of neighbours whose rows are gone
// stays what was found.
func (b *Book) pair(e *entry) {
	b.rests = b.rests[:0]
	if e.pairs != nil {
		for i := range e.pairs.list {
			p := e.pairs.list[i].unpack()
			if !e.saw(p.beside) && b.known[entryKey{e.key.gpu, p.beside}] != nil {
				b.rests = append(b.rests, p)
			}
		}
	}
	var order [maxRows]uint8
	n := 0
	for neighbours := 1; neighbours <= MaxBeside; neighbours++ {
		for i := range e.rows {
			if e.rows[i].count > 0 && e.rows[i].neighbours() == neighbours {
				order[n] = uint8(i)
				n++
			}
		}
	}
	for _, i := range order[:n] {
		b.split(e, &e.rows[i])
	}
	if len(b.rests) == 0 {
		e.pairs = nil
		return
	}
	// The surest stay.
	slices.SortFunc(b.rests, func(x, y pair) int {
		return cmp.Or(cmp.Compare(x.doubt, y.doubt), cmp.Compare(x.beside, y.beside))
	})
	list := make([]packed, min(len(b.rests), maxPairs))
	for i := range list {
		list[i] = b.rests[i].pack()
	}
	slices.SortFunc(list, func(x, y packed) int { return cmp.Compare(x.beside, y.beside) })
	e.pairs = &Pairs{list}
}

// saw reports whether a workload is a neighbour in a row.
func (e *entry) saw(w Workload) bool {
	return slices.ContainsFunc(e.rows, func(r row) bool { return slices.Contains(r.beside[:], w) })
}

// split adds what is left of a row to the rests of its neighbours: one step of a Kalman filter without covariances.
func (b *Book) split(e *entry, r *row) {
	all, _ := b.load(e, r, 0)
	left := float64(r.log) - (e.traits.Offset - math.Exp(e.traits.Sensitivity)*all)
	variance := varianceOfPair * lasting / float64(r.count)
	var at [MaxBeside]int
	n := r.neighbours()
	for i, w := range r.beside[:n] {
		at[i] = b.rest(w)
		left -= b.rests[at[i]].rest
		variance += varianceOfRest * b.rests[at[i]].doubt
	}
	for _, k := range at[:n] {
		p := &b.rests[k]
		gain := varianceOfRest * p.doubt / variance
		p.rest = bound(p.rest+gain*left, mostRest)
		p.doubt = max(0, p.doubt*(1-gain))
	}
}

// rest returns the place of a neighbour in rests.
func (b *Book) rest(w Workload) int {
	i := slices.IndexFunc(b.rests, func(p pair) bool { return p.beside == w })
	if i < 0 {
		i = len(b.rests)
		b.rests = append(b.rests, pair{w, 0, 1})
	}
	return i
}

// neighbours returns their number.
func (r *row) neighbours() int {
	n := 0
	for n < MaxBeside && r.beside[n] != 0 {
		n++
	}
	return n
}
