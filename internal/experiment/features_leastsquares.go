package experiment

import "math"

// ridge keeps columns apart that say almost the same, as a part of their variance. Larger pulls the coefficients together
// and costs accuracy: on gpumemnet up to 10⁻⁴ gives the same errors to three digits, 10⁻¹ a fifth more in SM and more than
// twice as much in memory.
const ridge = 1e-6

// leastSquares returns the coefficients of the columns that leave the least squared error of y. The first column is the
// constant 1; the others are centred and scaled before the ridge is added, so that their units do not matter. A column that
// does not vary has the coefficient 0. There must be at least one row.
func leastSquares(rows [][]float64, y []float64) []float64 {
	n := len(rows[0]) - 1
	mean, scale := columns(rows)
	level := 0.0
	for _, v := range y {
		level += v / float64(len(y))
	}
	normal, right := make([][]float64, n), make([]float64, n)
	for i := range normal {
		normal[i] = make([]float64, n)
		normal[i][i] = ridge * float64(len(rows))
	}
	z := make([]float64, n)
	for k, row := range rows {
		for i := range z {
			z[i] = (row[i+1] - mean[i]) / scale[i]
		}
		for i := range z {
			right[i] += z[i] * (y[k] - level)
			for j := range i + 1 {
				normal[i][j] += z[i] * z[j]
			}
		}
	}
	solve(normal, right)
	w := append([]float64{level}, right...)
	for i := range n {
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

// solve replaces b by the solution of a·x = b, for an a that is symmetric and positive definite, of which it reads and
// overwrites the lower triangle (Cholesky).
func solve(a [][]float64, b []float64) {
	for j := range a {
		for k := range j {
			a[j][j] -= a[j][k] * a[j][k]
		}
		a[j][j] = math.Sqrt(a[j][j])
		for i := j + 1; i < len(a); i++ {
			for k := range j {
				a[i][j] -= a[i][k] * a[j][k]
			}
			a[i][j] /= a[j][j]
		}
	}
	for i := range a {
		for k := range i {
			b[i] -= a[i][k] * b[k]
		}
		b[i] /= a[i][i]
	}
	for i := len(a) - 1; i >= 0; i-- {
		for k := i + 1; k < len(a); k++ {
			b[i] -= a[k][i] * b[k]
		}
		b[i] /= a[i][i]
	}
}
