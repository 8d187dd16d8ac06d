package elastic

import (
	"cmp"
	"math"
	"slices"
)

// rates knows the rates of combinations: those given, and estimates between them.
type rates struct {
	given map[Combination]float64
	// least and most are the corners of the region between the given ones.
	least, most Combination
	fit         *rateFit
}

// newRates returns what valid rates say, in any order.
func newRates(list []CombinationRate) *rates {
	r := &rates{given: make(map[Combination]float64, len(list))}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b CombinationRate) int { return cmp.Or(a.Workers-b.Workers, a.Servers-b.Servers) })
	for i, p := range list {
		r.given[p.Combination] = p.Rate
		if i == 0 {
			r.least, r.most = p.Combination, p.Combination
		}
		r.least = Combination{min(r.least.Workers, p.Workers), min(r.least.Servers, p.Servers)}
		r.most = Combination{max(r.most.Workers, p.Workers), max(r.most.Servers, p.Servers)}
	}
	r.fit = fitRates(list)
	return r
}

// of returns the rate of a combination, and whether it was given. The rate is 0 where it is unknown.
func (r *rates) of(c Combination) (rate float64, given bool) {
	if rate, given = r.given[c]; given {
		return rate, true
	}
	inside := c.Workers >= r.least.Workers && c.Workers <= r.most.Workers && c.Servers >= r.least.Servers && c.Servers <= r.most.Servers
	if r.fit == nil || !inside {
		return 0, false
	}
	return r.fit.rate(c), false
}

// rateForm lists the terms of the time that a job takes for a unit of work, by its workers w and servers p.
type rateForm func(w, p float64) []float64

// sharedBatch is for synchronous training where the workers divide a batch of a given size: Optimus (Peng et al., EuroSys
// 2018), §3.2, synchronous training. A step takes time for the samples of one worker, a fixed part, the updates that one
// server receives from all workers, and overheads for each worker and each server.
func sharedBatch(w, p float64) []float64 { return []float64{1 / w, 1, w / p, w, p} }

// ownBatch is for training where each worker has a batch of its own, asynchronous or not: as there, asynchronous training,
// divided by the number of workers.
func ownBatch(w, p float64) []float64 { return []float64{1 / w, 1 / p, 1, p / w} }

// rateFit is a form with its coefficients, none of them negative.
type rateFit struct {
	form  rateForm
	coeff []float64
}

// leastForFit is how many rates a fit needs: as many as the longest form has terms. With fewer only the given combinations
// count.
const leastForFit = 5

// fitRates fits both forms to rates, sorted, and returns the one that estimates the rates better that are left out one at a
// time; nil where there are too few rates. It minimises the sum of squares of relative errors, without negative
// coefficients, as Optimus does.
func fitRates(list []CombinationRate) (best *rateFit) {
	if len(list) < leastForFit {
		return nil
	}
	least := math.Inf(1)
	for _, form := range []rateForm{sharedBatch, ownBatch} {
		fit, apart := fitForm(form, list)
		if fit != nil && apart < least {
			best, least = fit, apart
		}
	}
	return best
}

// rate returns the estimate for a combination.
func (f *rateFit) rate(c Combination) float64 {
	time := 0.0
	for i, term := range f.form(float64(c.Workers), float64(c.Servers)) {
		time += f.coeff[i] * term
	}
	if !(time > 0) {
		return 0
	}
	return 1 / time
}

// fitForm fits one form, and returns it with the sum of squares of the errors for rates that are left out.
func fitForm(form rateForm, list []CombinationRate) (fit *rateFit, apart float64) {
	rows := make([][]float64, len(list)) // each should add up to 1
	for i, p := range list {
		rows[i] = form(float64(p.Workers), float64(p.Servers))
		for j := range rows[i] {
			rows[i][j] *= p.Rate
		}
	}
	coeff := leastSquares(rows)
	if coeff == nil {
		return nil, 0
	}
	for i, row := range rows {
		c := leastSquares(slices.Concat(rows[:i], rows[i+1:]))
		sum := 0.0
		for j := range c {
			sum += c[j] * row[j]
		}
		apart += (sum - 1) * (sum - 1)
	}
	return &rateFit{form, coeff}, apart
}

// maxTerms is the number of terms of the longest form.
const maxTerms = 5

// equations are the normal equations of a form: the products of its terms, summed over the rates, and the sums of its terms.
type equations struct {
	products [maxTerms][maxTerms]float64
	sums     [maxTerms]float64
}

// leastSquares returns the coefficients, none of them negative, with which each row adds up to nearly 1; nil where there
// are none. It tries every set of terms: there are 31 at most, and the best set without a negative coefficient is the
// optimum (an optimum that sets the others to 0 solves the equations of its own terms).
func leastSquares(rows [][]float64) (best []float64) {
	var e equations
	n := len(rows[0])
	for _, row := range rows {
		for i := range n {
			e.sums[i] += row[i]
			for j := range n {
				e.products[i][j] += row[i] * row[j]
			}
		}
	}
	gain := 0.0 // by how much the squares are less than those of no terms at all
	for set := 1; set < 1<<n; set++ {
		if coeff, g, solved := e.solve(set); solved && g > gain*(1+1e-12) {
			best, gain = slices.Clone(coeff[:n]), g
		}
	}
	return best
}

// leastPivot is the part of a term that the terms before it must leave unexplained. Below it the term depends on them, and a
// smaller set does as well.
const leastPivot = 1e-9

// solve solves the equations of a set of terms, scaled so that all terms weigh the same, by Cholesky's method. It solves
// nothing where a term depends on the others, or where a coefficient is not above 0.
func (e *equations) solve(set int) (coeff [maxTerms]float64, gain float64, solved bool) {
	var terms [maxTerms]int
	var low [maxTerms][maxTerms]float64
	var x, scale [maxTerms]float64
	n := 0
	for t := range maxTerms {
		if set>>t&1 == 1 {
			terms[n], scale[n] = t, math.Sqrt(e.products[t][t])
			n++
		}
	}
	for i := range n {
		x[i] = e.sums[terms[i]] / scale[i]
		for j := range i + 1 {
			rest := e.products[terms[i]][terms[j]] / scale[i] / scale[j]
			for k := range j {
				rest -= low[i][k] * low[j][k]
			}
			switch {
			case j < i:
				low[i][j] = rest / low[j][j]
			case rest < leastPivot:
				return coeff, 0, false
			default:
				low[i][i] = math.Sqrt(rest)
			}
		}
		for k := range i {
			x[i] -= low[i][k] * x[k]
		}
		x[i] /= low[i][i]
		gain += x[i] * x[i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			x[i] -= low[k][i] * x[k]
		}
		if x[i] /= low[i][i]; !(x[i] > 0) {
			return coeff, 0, false
		}
		coeff[terms[i]] = x[i] / scale[i]
	}
	return coeff, gain, true
}
