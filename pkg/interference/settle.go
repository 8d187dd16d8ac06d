package interference

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
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
	for range rounds {
		for from := 0; from < len(keys); {
			to := from
			for ; to < len(keys) && keys[to].gpu == keys[from].gpu; to++ {
				b.settle(keys[to].gpu, keys[to].workload)
			}
			b.shift(keys[from:to])
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
				load := math.Exp(e.traits.Sensitivity) * b.load(e, gpu, r, 0)
				rest := float64(r.log) - (e.traits.Offset - load)
				weight := r.weight(rest)
				up, down = up-weight*load*rest, down+weight*load*load
			}
		}
	}
	by := bound((up-b.levels[gpu]/varianceOfLevel)/down, 1)
	for _, key := range keys {
		if t := &b.known[key].traits; t.CoRuns > 0 {
			t.Sensitivity = bound(t.Sensitivity+by, mostTrait)
			n, sum = n+1, sum+t.Sensitivity
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
	for range innerSteps {
		b.suffer(e, gpu)
		b.press(e, gpu, w)
	}
}

// suffer finds offset and sensitivity from the rows of the workload itself.
//
// With expected logarithm a − s·L, where L is what its neighbours press with and s = e^sensitivity, the slopes are 1 and
// −s·L; a row with the variance v has the weight 1/v.
func (b *Book) suffer(e *entry, gpu GPU) {
	offset := varianceOfOffset
	if e.open {
		offset = varianceOfOpenOffset
	}
	t := &e.traits
	aa, as, ss := 1/offset, 0., 1/varianceOfSensitivity
	ya, ys := 0., b.levels[gpu]/varianceOfSensitivity
	for i := range e.rows {
		r := &e.rows[i]
		if r.count == 0 {
			continue
		}
		load := math.Exp(t.Sensitivity) * b.load(e, gpu, r, 0)
		rest := float64(r.log) - (t.Offset - load)
		weight := r.weight(rest)
		target := rest + t.Offset - load*t.Sensitivity
		aa, as, ss = aa+weight, as-weight*load, ss+weight*load*load
		ya, ys = ya+weight*target, ys-weight*load*target
	}
	det := aa*ss - as*as
	t.Offset = bound((ss*ya-as*ys)/det, 4*math.Sqrt(offset))
	t.Sensitivity = bound((aa*ys-as*ya)/det, mostTrait)
	t.SureOffset = sure(ss/det, offset)
	t.SureSensitivity = sure(aa/det, varianceOfSensitivity)
}

// press finds the pressure from the rows of its neighbours.
func (b *Book) press(e *entry, gpu GPU, w Workload) {
	t := &e.traits
	pp, yp := 1/varianceOfPressure, 0.
	for _, s := range e.seen {
		v := b.known[entryKey{gpu, s.of}]
		if v == nil || int(s.row) >= len(v.rows) || !slices.Contains(v.rows[s.row].beside[:], w) {
			continue
		}
		r, force := &v.rows[s.row], math.Exp(v.traits.Sensitivity)
		all := force * b.load(v, gpu, r, 0)
		mine := force * b.load(v, gpu, r, w)
		rest := float64(r.log) - (v.traits.Offset - all)
		weight := r.weight(rest)
		pp += weight * mine * mine
		yp -= weight * mine * (rest - mine*t.Pressure)
	}
	t.Pressure = bound(yp/pp, mostTrait)
	t.SurePressure = sure(1/pp, varianceOfPressure)
}

// load returns what the neighbours of a row press with on its workload, before its sensitivity: all, or only one.
func (b *Book) load(e *entry, gpu GPU, r *row, only Workload) float64 {
	self := e.profile.On(milli(r.caps[MaxBeside]))
	caps := self.Cap
	var p presses
	for i, w := range r.beside {
		if w == 0 {
			break
		}
		n := b.Tenant(w, gpu, milli(r.caps[i]))
		caps += n.Cap
		if only == 0 || only == w {
			p.add(&n, 1)
		}
	}
	return p.loss(b.model.Coefficients, &self, sums{caps: caps}.crowded())
}

// weight is one over the variance of a row that is so far from what is expected.
func (r *row) weight(rest float64) float64 {
	v := varianceOfPair * (lasting + (1-lasting)/float64(r.count))
	if far := math.Abs(rest) / (farOff * math.Sqrt(v)); far > 1 {
		v *= far
	}
	return 1 / v
}

// milli returns a part of the SMs in thousandths.
func milli(part float32) vgpu.MilliGPU {
	return vgpu.MilliGPU(math.Round(float64(part) * float64(vgpu.WholeGPU)))
}

func bound(v, by float64) float64 { return min(by, max(-by, v)) }

// sure returns the part of a variance that is gone.
func sure(now, before float64) float64 { return min(1, max(0, 1-now/before)) }
