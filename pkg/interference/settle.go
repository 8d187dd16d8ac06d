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
	// lasting is the part of a pair's variance that more observations of the same neighbourhood do not remove.
	lasting = .2
	// steps of Newton's method for one workload before its neighbours' turn.
	innerSteps = 2
)

// Settle goes over all workloads so many times and makes the traits agree with the observations and with each other. What
// Observe does is enough between observations that come one by one; many at once settle in some ten rounds.
func (b *Book) Settle(rounds int) {
	keys := slices.SortedFunc(maps.Keys(b.known), func(x, y entryKey) int {
		return cmp.Or(cmp.Compare(x.gpu, y.gpu), cmp.Compare(x.workload, y.workload))
	})
	for round := range rounds {
		for from := 0; from < len(keys); {
			to := from
			for ; to < len(keys) && keys[to].gpu == keys[from].gpu; to++ {
				b.settle(keys[to].gpu, keys[to].workload)
			}
			b.shift(keys[from:to])
			if round == rounds-1 {
				b.scatter(keys[from:to])
				for _, key := range keys[from:to] {
					b.pair(b.known[key])
				}
			}
			from = to
		}
	}
}

// shift moves the sensitivities of all workloads on a GPU model together, to where the observations agree best, and then
// its level to their mean. One by one they would get there slowly: each is held back by its neighbours.
func (b *Book) shift(keys []entryKey) {
	gpu, up, down, n, sum := keys[0].gpu, 0., 1/varianceOfLevel, 0., 0.
	for _, key := range keys {
		e := b.known[key]
		for i := range e.rows {
			if r := &e.rows[i]; r.count > 0 {
				all, _ := b.load(e, r, 0)
				load := math.Exp(e.traits.Sensitivity) * all
				rest := float64(r.log) - (e.traits.Offset - load)
				weight := r.weight(rest)
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
	b.levels[gpu] = sum / varianceOfSensitivity / (n/varianceOfSensitivity + 1/varianceOfLevel)
}

// settle finds the traits of one workload, with those of all others as they are.
func (b *Book) settle(gpu GPU, w Workload) {
	e := b.known[entryKey{gpu, w}]
	if e == nil {
		return
	}
	b.sweep(e)
	before := b.beliefs(e)
	var loads [maxRows]float64
	for i := range e.rows {
		if e.rows[i].count > 0 {
			loads[i], _ = b.load(e, &e.rows[i], 0)
		}
	}
	b.count(e)
	for range innerSteps {
		e.suffer(&before, &loads)
		b.press(e, &before)
	}
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
		sensitivity: belief{b.levels[e.key.gpu], varianceOfSensitivity},
		pressure:    belief{0, varianceOfPressure},
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

// suffer finds offset and sensitivity from the rows of the workload itself.
//
// With expected logarithm a − s·L, where L is what its neighbours press with and s = e^sensitivity, the slopes are 1 and
// −s·L; a row with the variance v has the weight 1/v.
func (e *entry) suffer(before *prior, loads *[maxRows]float64) {
	t := &e.traits
	aa, as, ss := 1/before.offset.variance, 0., 1/before.sensitivity.variance
	ya, ys := aa*before.offset.mean, ss*before.sensitivity.mean
	for i := range e.rows {
		r := &e.rows[i]
		if r.count == 0 {
			continue
		}
		load := math.Exp(t.Sensitivity) * loads[i]
		rest := float64(r.log) - (t.Offset - load)
		weight := r.weight(rest)
		target := rest + t.Offset - load*t.Sensitivity
		aa, as, ss = aa+weight, as-weight*load, ss+weight*load*load
		ya, ys = ya+weight*target, ys-weight*load*target
	}
	offset := varianceOfOffset
	if e.open {
		offset = varianceOfOpenOffset
	}
	det := aa*ss - as*as
	t.Offset = bound((ss*ya-as*ys)/det, 4*math.Sqrt(offset))
	t.Sensitivity = bound((aa*ys-as*ya)/det, mostTrait)
	t.SureOffset = sure(ss/det, offset)
	t.SureSensitivity = sure(aa/det, varianceOfSensitivity)
	e.judge(loads)
}

// judge finds how erratic a workload is: whoever contradicts itself, as one that invents its reports does, is believed the
// less about its neighbours.
func (e *entry) judge(loads *[maxRows]float64) {
	sum, n, force := 0., 0., math.Exp(e.traits.Sensitivity)
	for i := range e.rows {
		if r := &e.rows[i]; r.count > 0 {
			rest := float64(r.log) - (e.traits.Offset - force*loads[i])
			sum, n = sum+rest*rest/r.variance(), n+1
		}
	}
	e.erratic = max(1, sum/max(1, n)/surprising)
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
	t, force := &e.traits, math.Exp(e.traits.Pressure)
	for i := range b.votes {
		v := &b.votes[i]
		v.mine = v.unit * force
		v.rest = float64(v.row.log) - (v.offset - v.others - v.mine)
		v.weight = v.row.weight(v.rest) / v.erratic
	}
	b.temper()
	pp := 1 / before.pressure.variance
	yp := pp * before.pressure.mean
	for i := range b.votes {
		v := &b.votes[i]
		pp += v.weight * v.mine * v.mine
		yp -= v.weight * v.mine * (v.rest - v.mine*t.Pressure)
	}
	t.Pressure = bound(yp/pp, mostTrait)
	t.SurePressure = sure(1/pp, varianceOfPressure)
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

// weight is one over the variance of a row that is so far from what is expected.
func (r *row) weight(rest float64) float64 {
	v := r.variance()
	if far := math.Abs(rest) / (farOff * math.Sqrt(v)); far > 1 {
		v *= far
	}
	return 1 / v
}

func (r *row) variance() float64 { return varianceOfPair * (lasting + (1-lasting)/float64(r.count)) }

func bound(v, by float64) float64 { return min(by, max(-by, v)) }

// sure returns the part of a variance that is gone.
func sure(now, before float64) float64 { return min(1, max(0, 1-now/before)) }
