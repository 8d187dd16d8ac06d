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
	// traits explain. Larger believes single observations, smaller forgets what was seen of this very pair. Where pairs turn
	// out to differ by less, down to leastVarianceOfRest, that counts: steadyRows is how many rows the shipped value weighs.
	varianceOfRest      = .0036
	leastVarianceOfRest = .0001
	steadyRows          = 20
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
				found := p.list[i].unpack()
				return found.rest, found.doubt
			}
			break
		}
	}
	return 0, 1
}

// pair finds what is left of the rows of an entry that have one neighbour. What is left beside several is nobody's own: most
// of it is that losses do not add up exactly as the model says.
func (b *Book) pair(e *entry) {
	b.rests = b.rests[:0]
	for i := range e.rows {
		if r := &e.rows[i]; r.count > 0 && r.neighbours() == 1 {
			b.follow(e, r)
		}
	}
	if len(b.rests) == 0 {
		e.pairs = nil
		return
	}
	list := make([]packed, len(b.rests))
	for i := range list {
		list[i] = b.rests[i].pack()
	}
	slices.SortFunc(list, func(x, y packed) int { return cmp.Compare(x.beside, y.beside) })
	e.pairs = &Pairs{list}
}

// left returns what the traits leave of the logarithm of a row's speed.
func (b *Book) left(e *entry, r *row) float64 {
	all, _ := b.load(e, r, 0)
	return float64(r.log) - (e.traits.Offset - math.Exp(e.traits.Sensitivity)*all)
}

// scatter estimates by how much pairs differ on a GPU model from what traits explain, from the rows with one neighbour.
func (b *Book) scatter(keys []entryKey) {
	// The traits were fitted to the rows, which takes some of what is left from them: two of ten rows or so.
	const fitted = 1.25
	sum, n := varianceOfRest*steadyRows, float64(steadyRows)
	for _, key := range keys {
		e := b.known[key]
		for i := range e.rows {
			r := &e.rows[i]
			if r.count == 0 || r.neighbours() != 1 || e.erratic > 1 {
				continue
			}
			left := b.left(e, r)
			sum += min(fitted*left*left, 4*varianceOfRest) - varianceOfPair*lasting/float64(r.count)
			n++
		}
	}
	b.scatters[keys[0].gpu] = min(varianceOfRest, max(leastVarianceOfRest, sum/n))
}

// scattered returns by how much pairs differ on a GPU model.
func (b *Book) scattered(gpu GPU) float64 {
	if v, ok := b.scatters[gpu]; ok {
		return v
	}
	return varianceOfRest
}

// follow moves the rest of the only neighbour of a row towards what is left of it, as far as it is more likely to be the
// pair's than noise: a step of a Kalman filter. A workload under several caps has several rows beside the same neighbour.
func (b *Book) follow(e *entry, r *row) {
	i := slices.IndexFunc(b.rests, func(p pair) bool { return p.beside == r.beside[0] })
	if i < 0 {
		i = len(b.rests)
		b.rests = append(b.rests, pair{r.beside[0], 0, 1})
	}
	p := &b.rests[i]
	variance := b.scattered(e.key.gpu) * p.doubt
	gain := variance / (variance + varianceOfPair*lasting/float64(r.count))
	p.rest = bound(p.rest+gain*(b.left(e, r)-p.rest), mostRest)
	p.doubt *= 1 - gain
}

// neighbours returns their number.
func (r *row) neighbours() int {
	n := 0
	for n < MaxBeside && r.beside[n] != 0 {
		n++
	}
	return n
}
