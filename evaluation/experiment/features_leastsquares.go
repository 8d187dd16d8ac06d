package experiment

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// ridge keeps columns apart that say almost the same, as a part of their variance. Larger pulls the coefficients
// together and costs accuracy. On gpumemnet up to 10⁻⁴ gives the same errors to three digits, 10⁻¹ a fifth more in SM
// and more than twice as much in memory.
const ridge = 1e-6

// leastSquares returns the coefficients of the columns that leave the least squared error of y. The first column is the
// constant 1; leastSquares centres and scales the others before it adds the ridge, so that their units do not matter. A
// column that does not vary has the coefficient 0. The caller gives at least one row.
func leastSquares(rows [][]float64, y []float64) []float64 {
	n := len(rows[0]) - 1
	mean, scale := columns(rows)
	level := 0.0
	for _, v := range y {
		level += v / float64(len(y))
	}
	if n == 0 {
		return []float64{level}
	}
	normal, right := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for i := range n {
		normal.SetSym(i, i, ridge*float64(len(rows)))
	}
	z := mat.NewVecDense(n, nil)
	for k, row := range rows {
		for i := range n {
			z.SetVec(i, (row[i+1]-mean[i])/scale[i])
		}
		normal.SymRankOne(normal, 1, z)
		right.AddScaledVec(right, y[k]-level, z)
	}
	var factors mat.Cholesky
	if !factors.Factorize(normal) {
		panic("least squares: a matrix with a ridge is not positive definite")
	}
	if err := factors.SolveVecTo(right, right); err != nil {
		panic("least squares: " + err.Error()) // the condition is bounded by the ridge
	}
	w := append([]float64{level}, right.RawVector().Data...)
	for i := range mean {
		w[i+1] /= scale[i]
		w[0] -= w[i+1] * mean[i]
	}
	return w
}

// columns returns the mean and the standard deviation of every column but the first; the latter is 1 for one that does not
// vary.
func columns(rows [][]float64) (mean, scale []float64) {
	n, count := len(rows[0])-1, float64(len(rows))
	mean, scale = make([]float64, n), make([]float64, n)
	for i := range n {
		for _, row := range rows {
			mean[i] += row[i+1] / count
		}
		for _, row := range rows {
			scale[i] += (row[i+1] - mean[i]) * (row[i+1] - mean[i]) / count
		}
		scale[i] = math.Sqrt(scale[i])
		// Below this the sums above have only rounding errors left.
		const least = 1e-12
		if !(scale[i] > least*math.Abs(mean[i])) {
			scale[i] = 1
		}
	}
	return mean, scale
}
