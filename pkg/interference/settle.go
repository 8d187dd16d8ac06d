package interference

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	// farOff is how many standard errors an observation may be from what is expected before it counts less, in
	// proportion. Smaller trusts liars less, and true surprises too. 1.5 is the usual choice (Huber 1964).
	farOff = 1.5
	// varianceOfOpenOffset is the doubt about a speed alone that nobody measured: a factor of e up or down.
	varianceOfOpenOffset = 1.
	// steps of Newton's method for one workload before its neighbours' turn.
	innerSteps = 2
)

// Settle goes over all workloads so many times and makes the traits agree with the observations and with each other. What
// Observe does is enough between observations that come one by one; many at once settle in some ten rounds.
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

// shift moves the sensitivities of all workloads on a GPU model together, to where the observations agree best, and then
// its level to their mean. One by one they would get there slowly: each is held back by its neighbours.
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
	// Each counts as if its profile were a guess: workloads of one family are alike, and are no more than one of them.
	const each = guessFactor * varianceOfTrait
	b.levels[gpu] = sum / (n + each/varianceOfLevel)
}

// settle finds the traits of one workload, with those of all others as they are.
func (b *Book) settle(gpu GPU, w Workload) {
	e := b.known[entryKey{gpu, w}]
	if e == nil {
		return
	}
	b.sweep(e)
	before := b.beliefs(e)
	g := &b.ridge
	g.open(b, e)
	b.count(e)
	for range innerSteps {
		g.step(e, &before)
		b.press(e, &before)
	}
	e.judge(g)
}

// sweep empties the rows with a neighbour that is no longer known: without it they explain nothing.
func (b *Book) sweep(e *entry) {
	for i := range e.rows {
		for _, w := range e.rows[i].beside {
			if w != 0 && b.known[entryKey{e.key.gpu, w}] == nil {
				b.unsee(e, i)
				e.rows[i] = row{}
				break
			}
		}
	}
}

// beliefs returns what is believed of the traits of an entry before any row.
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

// judge finds how erratic a workload is: whoever contradicts itself, as one that invents its reports does, is believed the
// less about its neighbours.
func (e *entry) judge(g *ridge) {
	sum, force := 0., math.Exp(e.traits.Sensitivity)
	for k, r := range g.rows[:g.n] {
		rest := float64(r.log) - (e.traits.Offset - force*g.load[k])
		sum += rest * rest / r.variance(g.scatter)
	}
	e.erratic = max(1, sum/max(1, float64(g.n))/surprising)
}

// surprising is how many times as far as the model's error a workload's speeds may be off before it is believed less, as a
// variance. Smaller takes work that the model does not fit for lies, larger lets those who lie by half decide.
const surprising = 3

// vote is what a row says of the pressure of one neighbour in it.
type vote struct {
	owner Owner
	row   *row
	// offset of the workload that saw it; others is what its other neighbours cost it, unit what this one does at pressure
	// 0, as logarithms.
	offset, others, unit float64
	erratic              float64
	// weight is set by press; mine is unit at the pressure that the neighbour has now.
	weight, mine, rest float64
}

// press finds the pressure from the rows of its neighbours.
func (b *Book) press(e *entry, before *prior) {
	t, force, scatter := &e.traits, math.Exp(e.traits.Pressure), b.scatter(e.key.gpu)
	for i := range b.votes {
		v := &b.votes[i]
		v.mine = v.unit * force
		v.rest = float64(v.row.log) - (v.offset - v.others - v.mine)
		v.weight = v.row.weight(v.rest, scatter) / v.erratic
	}
	b.temper()
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

// count collects the votes about a workload.
func (b *Book) count(e *entry) {
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

// loudness is how many times the weight of the median owner's votes one owner's may have. Smaller lets those who saw
// little decide as much as those who saw much; larger lets an owner with many workloads outvote the others.
const loudness = 2

// temper lowers the weight of owners that have more than loudness allows.
func (b *Book) temper() {
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
	most := loudness * weights[(n-1)/2]
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
	self := e.under(r.caps[MaxBeside])
	caps := self.Cap
	var every, only presses
	for i, w := range r.beside {
		if w == 0 {
			break
		}
		n := b.known[entryKey{e.key.gpu, w}]
		if n == nil {
			continue
		}
		t := n.under(r.caps[i])
		caps += t.Cap
		every.add(&t)
		if w == one {
			only.add(&t)
		}
	}
	c, crowded := b.model.Coefficients, sums{caps: caps}.crowded()
	if one != 0 {
		mine = only.loss(c, &self, crowded)
	}
	return every.loss(c, &self, crowded), mine
}

// weight is one over the variance of a row that is so far from what is expected, by itself.
func (r *row) weight(rest, scatter float64) float64 {
	v := r.variance(scatter)
	return 1 / (v * farther(rest, v))
}

func bound(v, by float64) float64 { return min(by, max(-by, v)) }

// sure returns the part of a variance that is gone.
func sure(now, before float64) float64 { return min(1, max(0, 1-now/before)) }
