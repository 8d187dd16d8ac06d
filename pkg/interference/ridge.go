package interference

import (
	"math"
	"slices"
)

// ridge computes what the rows of one workload say together. The method is a ridge regression towards the prediction
// from the traits of all neighbours. The logarithm of the speed of row r is
//
//	y_r = offset − e^sensitivity · load_r + Σ over its neighbours j of rest_j + noise_r
//
// The regression draws offset, sensitivity and rests towards their priors, in proportion to their variances. A common
// neighbour correlates the errors of two rows: their covariance is the scatter of pairs times the number of common
// neighbours. The book reuses it for each workload.
type ridge struct {
	n       int
	rows    [maxRows]*row
	scatter float64
	// names are the neighbours in the rows, each once. wide is the factor on the scatter of the pair with each.
	names []Workload
	wide  []float64
	next  [maxRows * MaxBeside]float64 // the next values of wide
	load  [maxRows]float64             // the pressure of the neighbours, at sensitivity 0
	left  [maxRows]float64             // what the traits do not explain of the speeds
	// factor is the lower triangle of the Cholesky factor of the covariance of the rows.
	factor [maxRows][maxRows]float64
	// The inverse covariance times ones, times the slopes of the sensitivity, and times the remainders.
	ones, slopes, weighed [maxRows]float64
	// The remaining doubt: variances of offset and sensitivity, and their covariance.
	offset, sensitivity, both float64
}

// open loads the rows of an entry.
func (g *ridge) open(b *Book, e *entry) {
	g.n, g.scatter = 0, b.scatter(e.key.gpu)
	g.names, g.wide = g.names[:0], g.wide[:0]
	for i := range e.rows {
		r := &e.rows[i]
		if r.count == 0 {
			continue
		}
		g.rows[g.n] = r
		g.load[g.n], _ = b.load(e, r, 0)
		g.n++
		for _, w := range r.beside[:r.neighbours()] {
			if !slices.Contains(g.names, w) {
				g.names, g.wide = append(g.names, w), append(g.wide, 1)
			}
		}
	}
}

// widen enlarges the scatter of each pair that is far off, in proportion. Few pairs are far off, and a repeated
// observation of a pair is true and no noise.
func (g *ridge) widen() {
	for i, w := range g.names {
		rest := 0.
		for k := range g.n {
			rest += g.scatter * g.wide[i] * g.rows[k].times(w) * g.weighed[k]
		}
		g.next[i] = farther(rest, g.scatter)
	}
	copy(g.wide, g.next[:len(g.wide)])
}

// step moves the traits of the entry to the best agreement of rows and prior. The method is one step of Gauss and
// Newton, whose slopes are 1 for the offset and −e^sensitivity · load for the sensitivity.
func (g *ridge) step(e *entry, before *prior) {
	t := &e.traits
	g.weigh(t, false)
	up, along := before.offset.pull(t.Offset), before.sensitivity.pull(t.Sensitivity)
	force := math.Exp(t.Sensitivity)
	for k := range g.n {
		up += g.weighed[k]
		along -= force * g.load[k] * g.weighed[k]
	}
	g.doubts(force, before)
	t.Offset = bound(t.Offset+g.offset*up+g.both*along, 4*math.Sqrt(e.unsureOffset()))
	t.Sensitivity = bound(t.Sensitivity+g.both*up+g.sensitivity*along, mostTrait)
}

// pull is how strongly the prior draws a value.
func (b *belief) pull(v float64) float64 { return (b.mean - v) / b.variance }

// weigh computes what the traits do not explain of each row, weighted by the covariance of the rows. A part of the
// scatter of pairs counts there.
func (g *ridge) weigh(t *Traits, tied bool) {
	force := math.Exp(t.Sensitivity)
	for k := range g.n {
		g.left[k] = float64(g.rows[k].log) - (t.Offset - force*g.load[k])
	}
	g.decompose(tied)
	for k := range g.n {
		g.ones[k], g.slopes[k], g.weighed[k] = 1, -force*g.load[k], g.left[k]
	}
	g.solve(&g.ones)
	g.solve(&g.slopes)
	g.solve(&g.weighed)
}

// doubts computes the variances of offset and sensitivity that the rows leave.
func (g *ridge) doubts(force float64, before *prior) {
	aa, as, ss := 1/before.offset.variance, 0., 1/before.sensitivity.variance
	for k := range g.n {
		aa += g.ones[k]
		as += g.slopes[k]
		ss -= force * g.load[k] * g.slopes[k]
	}
	det := aa*ss - as*as
	g.offset, g.both, g.sensitivity = ss/det, -as/det, aa/det
}

// decompose factors the covariance of the rows. A row that is far off counts less.
func (g *ridge) decompose(tied bool) {
	for i := range g.n {
		for j := range i + 1 {
			v := 0.
			if tied {
				v = g.scatter * g.common(g.rows[i], g.rows[j])
				if i == j {
					v += g.rows[i].noise()
				}
			} else if i == j {
				v = g.scatter * typical * g.rows[i].common(g.rows[j])
				v += g.rows[i].noise()
				v *= farther(g.left[i], v)
			}
			for k := range j {
				v -= g.factor[i][k] * g.factor[j][k]
			}
			if i == j {
				g.factor[i][i] = math.Sqrt(v)
			} else {
				g.factor[i][j] = v / g.factor[j][j]
			}
		}
	}
}

// half solves for the vector with the factor alone.
func (g *ridge) half(x *[maxRows]float64) {
	for i := range g.n {
		for k := range i {
			x[i] -= g.factor[i][k] * x[k]
		}
		x[i] /= g.factor[i][i]
	}
}

// solve multiplies the vector with the inverse covariance of the rows.
func (g *ridge) solve(x *[maxRows]float64) {
	g.half(x)
	for i := g.n - 1; i >= 0; i-- {
		for k := i + 1; k < g.n; k++ {
			x[i] -= g.factor[k][i] * x[k]
		}
		x[i] /= g.factor[i][i]
	}
}

// pair returns what the rows say of the workload beside another one with a load. The results are the rest, the
// remaining variance of the rest alone, and the remaining part of the doubt about the speed.
func (g *ridge) pair(t *Traits, w Workload, load float64) (rest, variance, doubt float64) {
	var times [maxRows]float64
	ones, slope, unexplained := 0., 0., math.Inf(1)
	own := g.scatter * g.wide[slices.Index(g.names, w)]
	for k, r := range g.rows[:g.n] {
		n := r.times(w)
		if n > 0 {
			unexplained = min(unexplained, math.Abs(r.noise()*g.weighed[k]/n))
		}
		times[k] = own * n
		rest += times[k] * g.weighed[k]
		ones += times[k] * g.ones[k]
		slope += times[k] * g.slopes[k]
	}
	g.half(&times)
	for k := range g.n {
		own -= times[k] * times[k]
	}
	own = max(0, own)
	along := -math.Exp(t.Sensitivity) * load
	// The unexplained part of the most informative row may be due to this neighbour.
	most := own + unexplained*unexplained + g.due(1-ones, along-slope)
	return rest, own + g.due(ones, slope), min(1, most/(varianceOfPair+g.due(1, along)))
}

// due returns the variance that comes from multiples of the offset and the sensitivity.
func (g *ridge) due(offset, sensitivity float64) float64 {
	return g.offset*offset*offset + 2*g.both*offset*sensitivity + g.sensitivity*sensitivity*sensitivity
}

// common returns how many neighbours two rows have in common, each as often as it is in both and as wide as its pair is.
func (g *ridge) common(r, q *row) float64 {
	n := 0.
	for _, w := range r.beside {
		if w == 0 {
			break
		}
		if t := q.times(w); t > 0 {
			n += g.wide[slices.Index(g.names, w)] * t
		}
	}
	return n
}

// common returns how many neighbours two rows have in common, each as often as it is in both.
func (r *row) common(q *row) float64 {
	n := 0.
	for _, w := range r.beside {
		if w == 0 {
			break
		}
		n += q.times(w)
	}
	return n
}

// times returns how often a workload is a neighbour in the row.
func (r *row) times(w Workload) float64 {
	n := 0.
	for _, other := range r.beside {
		if other == w {
			n++
		}
	}
	return n
}

// noise is the variance of a row without the scatter of its pairs.
func (r *row) noise() float64 {
	return varianceOfSpeed + varianceOfNoise/float64(r.count) + varianceOfSum*float64(r.neighbours()-1)
}

// variance is the variance of a row by itself, for typical pairs.
func (r *row) variance(scatter float64) float64 { return typical*scatter*r.common(r) + r.noise() }

// farther returns the factor on the variance of a row that is far off.
func farther(rest, variance float64) float64 {
	return max(1, math.Abs(rest)/(farOff*math.Sqrt(variance)))
}
