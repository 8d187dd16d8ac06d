package lifetimes

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// linear fits the logarithm of the length by least squares on the features and one constant for each category, with a small ridge so that
// constants of rare categories exist.
func linear(from, predict []*job) (predicted, fitted []float64, err error) {
	columns := map[int]int{}
	for _, j := range from {
		for _, c := range j.category {
			if _, ok := columns[c]; !ok {
				columns[c] = len(columns)
			}
		}
	}
	plain := 1 + len(from[0].features)
	row := func(j *job) []float64 {
		x := make([]float64, plain+len(columns))
		x[0] = 1
		copy(x[1:], j.features)
		for _, c := range j.category {
			if at, ok := columns[c]; ok {
				x[plain+at] = 1
			}
		}
		return x
	}
	n := plain + len(columns)
	square, right := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for _, j := range from {
		x := mat.NewVecDense(n, row(j))
		square.SymRankOne(square, 1, x)
		right.AddScaledVec(right, math.Log(j.length), x)
	}
	for i := range n {
		square.SetSym(i, i, square.At(i, i)+1)
	}
	var factors mat.Cholesky
	if !factors.Factorize(square) {
		return nil, nil, fmt.Errorf("fit a regression to %d jobs: the equations have no solution", len(from))
	}
	var by mat.VecDense
	if err := factors.SolveVecTo(&by, right); err != nil {
		return nil, nil, fmt.Errorf("fit a regression to %d jobs: %w", len(from), err)
	}
	of := func(jobs []*job) []float64 {
		out := make([]float64, len(jobs))
		for i, j := range jobs {
			out[i] = mat.Dot(&by, mat.NewVecDense(n, row(j)))
		}
		return out
	}
	return of(predict), of(from), nil
}
