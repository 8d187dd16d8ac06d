package interference

import (
	"cmp"
	"math"
	"slices"
)

// Pairs is what is left of the speeds of one workload beside single others when its traits and theirs have explained what
// they can. It does not change; nil is of a workload that was never observed.
type Pairs struct{ list []pair }

// pair is a workload beside another.
type pair struct {
	beside Workload
	// rest is what is left of the logarithm of the speed, and doubt the part of the doubt about it that is left.
	rest, doubt float32
}

const (
	// varianceOfRest is that of what is left of a pair, before any co-run: on Lucid, pairs differ by about 6 % from what
	// traits explain. Larger believes single observations, smaller forgets what was seen of this very pair.
	varianceOfRest = .0036
	// mostRest bounds what is left, so that nobody talks one neighbour away: three standard errors.
	mostRest = .18
)

// of returns the rest and the doubt about it that is left beside a workload: 0 and 1 where the two were not observed.
func (p *Pairs) of(w Workload) (rest, doubt float64) {
	if p == nil || w == 0 {
		return 0, 1
	}
	for i := range p.list {
		if p.list[i].beside >= w {
			if p.list[i].beside == w {
				return float64(p.list[i].rest), float64(p.list[i].doubt)
			}
			break
		}
	}
	return 0, 1
}

// pair finds what is left of the rows of an entry. Where a row has several neighbours, each takes its part by how much
// doubt there was about it, the rows with one neighbour first: they tell of nobody else.
func (b *Book) pair(e *entry) {
	b.rests = b.rests[:0]
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
	list := slices.Clone(b.rests[:min(len(b.rests), maxRows)])
	slices.SortFunc(list, func(x, y pair) int { return cmp.Compare(x.beside, y.beside) })
	e.pairs = &Pairs{list}
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
		left -= float64(b.rests[at[i]].rest)
		variance += varianceOfRest * float64(b.rests[at[i]].doubt)
	}
	for _, k := range at[:n] {
		p := &b.rests[k]
		gain := varianceOfRest * float64(p.doubt) / variance
		p.rest = float32(bound(float64(p.rest)+gain*left, mostRest))
		p.doubt = float32(max(0, float64(p.doubt)*(1-gain)))
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
