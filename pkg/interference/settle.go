package interference

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	// farOff is how many standard errors an observation may be from the expected value before it counts less, in
	// proportion. A smaller value trusts false reports less, and true surprises too. 1.5 is the usual choice (Huber
	// 1964).
	farOff = 1.5
	// varianceOfOpenOffset is the doubt about an unknown speed without neighbours: a factor of e up or down.
	varianceOfOpenOffset = 1.
	// innerSteps is the steps of Newton's method for one workload before its neighbours follow. More steps cost time.
	innerSteps = 2
)

// Settle updates all workloads in so many rounds, and makes the traits agree with the observations and with each other.
// Between observations that arrive one by one, Observe is enough; many at once settle in some ten rounds.
func (b *Book) Settle(rounds int) {
	keys := slices.SortedFunc(maps.Keys(b.known), func(x, y entryKey) int {
		return cmp.Or(cmp.Compare(x.gpu, y.gpu), cmp.Compare(x.workload, y.workload))
	})
	for range rounds {
		for from := 0; from < len(keys); {
			to := from
			for ; to < len(keys) && keys[to].gpu == keys[from].gpu; to++ {
				b.settle(keys[to].gpu, keys[to].workload)
			}
			b.shift(keys[from:to])
			b.pairAll(keys[from:to])
			from = to
		}
	}
}

// shift moves the sensitivities of all workloads on a GPU model together to the best agreement with the observations,
// and then the level to their mean. Single updates would get there slowly, since neighbours hold each other back.
func (b *Book) shift(keys []entryKey) {
	gpu, up, down, n, sum := keys[0].gpu, 0., 1/varianceOfLevel, 0., 0.
	scatter := b.scatter(gpu)
	for _, key := range keys {
		e := b.known[key]
		for i := range e.rows {
			if r := &e.rows[i]; r.count > 0 {
				all, _ := b.load(e, r, 0)
				load := math.Exp(e.traits.Sensitivity) * all
				rest := float64(r.log) - (e.traits.Offset - load)
				weight := r.weight(rest, scatter)
				up, down = up-weight*load*rest, down+weight*load*load
			}
		}
	}
	by := bound((up-b.levels[gpu]/varianceOfLevel)/down, 1)
	for _, key := range keys {
		if e := b.known[key]; e.traits.CoRuns > 0 {
			if len(e.rows) > 0 {
				e.traits.Sensitivity = bound(e.traits.Sensitivity+by, mostTrait)
			}
			n, sum = n+1, sum+e.traits.Sensitivity
		}
	}
	// Each counts as if its profile were a guess: workloads of one family are alike and count as one.
	const each = guessFactor * varianceOfTrait
	b.levels[gpu] = sum / (n + each/varianceOfLevel)
}

// settle finds the traits of one workload, with those of all others fixed.
func (b *Book) settle(gpu GPU, w Workload) {
	e := b.known[entryKey{gpu, w}]
	if e == nil {
		return
	}
	b.dropStaleRows(e)
	before := b.beliefs(e)
	g := &b.ridge
	g.open(b, e)
	b.collectVotes(e)
	for range innerSteps {
		g.step(e, &before)
		b.fitPressure(e, &before)
	}
	e.setErratic(g)
}

// dropStaleRows empties the rows with a dropped neighbour: without it they explain nothing.
func (b *Book) dropStaleRows(e *entry) {
	for i := range e.rows {
		for _, w := range e.rows[i].beside {
			if w != 0 && b.known[entryKey{e.key.gpu, w}] == nil {
				b.forgetRow(e, i)
				e.rows[i] = row{}
				break
			}
		}
	}
}

// beliefs returns the prior of the traits of an entry, before any row.
func (b *Book) beliefs(e *entry) prior {
	p := prior{
		sensitivity: belief{b.levels[e.key.gpu], e.unsureTrait()},
		pressure:    belief{0, e.unsureTrait()},
		offset:      belief{0, varianceOfOffset},
	}
	if e.prior != nil {
		p = *e.prior
	}
	if e.open {
		p.offset = belief{0, varianceOfOpenOffset}
	}
	return p
}

// unsureOffset is the variance of the speed alone before any row.
func (e *entry) unsureOffset() float64 {
	if e.open {
		return varianceOfOpenOffset
	}
	return varianceOfOffset
}

// setErratic computes how erratic a workload is. A workload that contradicts itself, as one with invented reports does,
// counts less about its neighbours.
func (e *entry) setErratic(g *ridge) {
	sum, force := 0., math.Exp(e.traits.Sensitivity)
	for k, r := range g.rows[:g.n] {
		rest := float64(r.log) - (e.traits.Offset - force*g.load[k])
		sum += rest * rest / r.variance(g.scatter)
	}
	e.erratic = max(1, sum/max(1, float64(g.n))/surprising)
}

// surprising is the variance of a workload's speeds, as a multiple of the model's, above which its reports count less.
// A smaller value takes work that the model does not fit for false reports, a larger one lets half-false reports
// decide.
const surprising = 3

// vote is what a row says about the pressure of one neighbour in it.
type vote struct {
	owner Owner
	row   *row
	// offset is that of the workload that saw the row. others is the loss by its other neighbours. unit is the loss by
	// this neighbour at pressure 0. All are logarithms.
	offset, others, unit float64
	erratic              float64
	// fitPressure sets weight; mine is unit at the present pressure of the neighbour.
	weight, mine, rest float64
}

// fitPressure computes the pressure from the rows of its neighbours.
func (b *Book) fitPressure(e *entry, before *prior) {
	t, force, scatter := &e.traits, math.Exp(e.traits.Pressure), b.scatter(e.key.gpu)
	for i := range b.votes {
		v := &b.votes[i]
		v.mine = v.unit * force
		v.rest = float64(v.row.log) - (v.offset - v.others - v.mine)
		v.weight = v.row.weight(v.rest, scatter) / v.erratic
	}
	b.boundOwners()
	pp := 1 / before.pressure.variance
	yp, known := pp*before.pressure.mean, pp
	for i := range b.votes {
		v := &b.votes[i]
		pp += v.weight * v.mine * v.mine
		typically := v.row.variance(scatter)
		known += v.weight * v.mine * v.mine * typically / (typically + (1-typical)*scatter*v.row.common(v.row))
		yp -= v.weight * v.mine * (v.rest - v.mine*t.Pressure)
	}
	t.Pressure = bound(yp/pp, mostTrait)
	t.SurePressure = sure(1/known, e.unsureTrait())
}

// collectVotes collects the votes about a workload.
func (b *Book) collectVotes(e *entry) {
	b.votes = b.votes[:0]
	for _, s := range e.seen {
		v := b.known[entryKey{e.key.gpu, s.of}]
		if v == nil || int(s.row) >= len(v.rows) || !slices.Contains(v.rows[s.row].beside[:], e.key.workload) {
			continue
		}
		r, force := &v.rows[s.row], math.Exp(v.traits.Sensitivity)
		all, mine := b.load(v, r, e.key.workload)
		b.votes = append(b.votes, vote{
			owner: v.owner, row: r, offset: v.traits.Offset, erratic: v.erratic,
			others: force * (all - mine), unit: force * mine / math.Exp(e.traits.Pressure),
		})
	}
}

// maxOwnerWeight bounds the weight of one owner's votes, as a multiple of the median owner's. A smaller bound lets
// owners with few observations decide as much as those with many; a larger one lets an owner with many workloads
// outvote the others.
const maxOwnerWeight = 2

// boundOwners lowers the weight of owners with more than maxOwnerWeight allows.
func (b *Book) boundOwners() {
	var owners [maxSeen]struct {
		owner  Owner
		weight float64
	}
	var weights [maxSeen]float64
	n := 0
	for i := range b.votes {
		v := &b.votes[i]
		if v.owner == 0 {
			continue
		}
		at := 0
		for at < n && owners[at].owner != v.owner {
			at++
		}
		if at == n {
			n++
			owners[at].owner = v.owner
		}
		owners[at].weight += v.weight * v.mine * v.mine
	}
	if n < 2 {
		return
	}
	for i := range n {
		weights[i] = owners[i].weight
	}
	slices.Sort(weights[:n])
	most := maxOwnerWeight * weights[(n-1)/2]
	for i := range b.votes {
		v := &b.votes[i]
		for _, o := range owners[:n] {
			if o.owner == v.owner && o.weight > most {
				v.weight *= most / o.weight
			}
		}
	}
}

// load returns what the neighbours of a row press with on its workload, before its sensitivity: all, and one of them.
func (b *Book) load(e *entry, r *row, one Workload) (all, mine float64) {
	self := e.underCap(r.caps[MaxBeside])
	caps := self.Cap
	var every, only pressures
	for i, w := range r.beside {
		if w == 0 {
			break
		}
		n := b.known[entryKey{e.key.gpu, w}]
		if n == nil {
			continue
		}
		t := n.underCap(r.caps[i])
		caps += t.Cap
		every.add(&t)
		if w == one {
			only.add(&t)
		}
	}
	c, crowded := b.model.Coefficients, sums{caps: caps}.overlap()
	if one != 0 {
		mine = only.loss(c, &self, crowded)
	}
	return every.loss(c, &self, crowded), mine
}

// weight is one over the variance of a row that is this far from the expected value.
func (r *row) weight(rest, scatter float64) float64 {
	v := r.variance(scatter)
	return 1 / (v * farther(rest, v))
}

func bound(v, by float64) float64 { return min(by, max(-by, v)) }

// sure returns the part of a variance that is gone.
func sure(now, before float64) float64 { return min(1, max(0, 1-now/before)) }
