package interference

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// Sample is the measured speed of one tenant of a device beside the others.
type Sample struct {
	On []Tenant
	// Of is the place of the tenant in On.
	Of    int
	Speed float64
}

// Fit returns the model with the coefficients that explain the samples best. The straight lines use least squares. The
// default model, whose outliers are wrongly measured pairs, uses least absolute errors. The model none has nothing to
// fit. The models table and rank1 learn from observations; their fit is to the mean loss. The two cases are tenants
// with SMs of their own, and tenants with the same SMs. The coefficients of a case without samples stay as shipped. The
// error is an unknown name, or too few samples.
func Fit(name string, samples []Sample) (Model, error) {
	m, err := ByName(name)
	if err != nil {
		return Model{}, err
	}
	if len(samples) == 0 && name != none.Name {
		return Model{}, fmt.Errorf("fit interference model %s: no samples", name)
	}
	var terms func(*Sample) []float64
	switch name {
	case none.Name:
		return m, nil
	case constant.Name:
		terms = func(*Sample) []float64 { return []float64{1} }
	case utilSum.Name:
		terms = func(s *Sample) []float64 { return []float64{1, -total(s.On).sm} }
	case hinge.Name:
		terms = func(s *Sample) []float64 { return []float64{1, -max(0, total(s.On).sm-1)} }
	case linearHinge.Name:
		terms = linearTerms
	case rank1.Name:
		x := make([]float64, 0, len(samples))
		for i := range samples {
			x = append(x, -math.Log(samples[i].Speed)/float64(len(samples[i].On)-1))
		}
		mean := max(0, stat.Mean(x, nil))
		m.Coefficients = []float64{mean, 0, mean, 0}
		return m, nil
	default:
		m.Coefficients = fitProduct(m.Coefficients, samples)
		return m, nil
	}
	if m.Coefficients, err = leastSquares(samples, terms); err != nil {
		return Model{}, fmt.Errorf("fit interference model %s: %w", name, err)
	}
	return m, nil
}

func linearTerms(s *Sample) []float64 {
	sum, t := total(s.On), &s.On[s.Of]
	return []float64{
		1, -t.SM, t.SM - sum.sm, t.Bandwidth, sum.bandwidth - t.Bandwidth, -max(0, sum.sm-1), -max(0, sum.bandwidth-1),
	}
}

// leastSquares solves for the coefficients of the terms. A very small ridge decides where terms depend on each other.
func leastSquares(samples []Sample, terms func(*Sample) []float64) ([]float64, error) {
	const ridge = 1e-9
	n := len(terms(&samples[0]))
	normal, right := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for i := range samples {
		row := mat.NewVecDense(n, terms(&samples[i]))
		normal.SymRankOne(normal, 1, row)
		right.AddScaledVec(right, samples[i].Speed, row)
	}
	for i := range n {
		normal.SetSym(i, i, normal.At(i, i)+ridge)
	}
	var chol mat.Cholesky
	if !chol.Factorize(normal) {
		return nil, errors.New("the samples do not tell the terms apart")
	}
	var c mat.VecDense
	if err := chol.SolveVecTo(&c, right); err != nil {
		return nil, fmt.Errorf("solve least squares: %w", err)
	}
	return c.RawVector().Data, nil
}

// fitProduct finds the two coefficients of each case that has samples.
func fitProduct(shipped []float64, samples []Sample) []float64 {
	var shared, apart []line
	for i := range samples {
		s := &samples[i]
		loss := func(c ...float64) float64 {
			var p pressures
			for j := range s.On {
				if j != s.Of {
					p.add(&s.On[j])
				}
			}
			return p.loss(c, &s.On[s.Of], total(s.On).overlap())
		}
		y := -math.Log(max(slowest, s.Speed))
		switch total(s.On).overlap() {
		case 1:
			shared = append(shared, line{loss(1, 0, 0, 0), loss(0, 1, 0, 0), y})
		case 0:
			apart = append(apart, line{loss(0, 0, 1, 0), loss(0, 0, 0, 1), y})
		}
	}
	c := append([]float64(nil), shipped...)
	for k, lines := range [][]line{shared, apart} {
		if len(lines) > 1 {
			c[2*k], c[2*k+1] = leastAbsolute(lines)
		}
	}
	return c
}

// line is y = c0·a + c1·b with one error.
type line struct{ a, b, y float64 }

// leastAbsolute returns c0 and c1, not below 0, with the least sum of absolute errors. The method repeats least squares
// with weights of one over the error, which converge in some dozen rounds.
func leastAbsolute(lines []line) (c0, c1 float64) {
	const rounds, least = 60, 1e-4
	weights := make([]float64, len(lines))
	for i := range weights {
		weights[i] = 1
	}
	for range rounds {
		var aa, ab, bb, ay, by float64
		for i, l := range lines {
			w := weights[i]
			aa, ab, bb, ay, by = aa+w*l.a*l.a, ab+w*l.a*l.b, bb+w*l.b*l.b, ay+w*l.a*l.y, by+w*l.b*l.y
		}
		c0, c1 = nonNegative(aa, ab, bb, ay, by)
		for i, l := range lines {
			weights[i] = 1 / max(least, math.Abs(l.y-c0*l.a-c1*l.b))
		}
	}
	return c0, c1
}

// nonNegative solves two normal equations for values not below 0. If one would be negative, it is 0 and the other is
// the best without it.
func nonNegative(aa, ab, bb, ay, by float64) (c0, c1 float64) {
	if det := aa*bb - ab*ab; det > 1e-12*aa*bb {
		c0, c1 = (bb*ay-ab*by)/det, (aa*by-ab*ay)/det
	} else if aa > 0 {
		c0 = ay / aa
	}
	switch {
	case c0 < 0 && bb > 0:
		c0, c1 = 0, by/bb
	case c1 < 0 && aa > 0:
		c0, c1 = ay/aa, 0
	}
	return max(0, c0), max(0, c1)
}
