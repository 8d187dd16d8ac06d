package traffic

import "math"

// tableau is a linear programme during the simplex method. Each row is an equation, which is solved for one variable, the one in the basis. All
// variables are 0 or more.
type tableau struct {
	// rows have the coefficients of the variables, then the value.
	rows [][]float64
	// costs say by how much each unit of a variable that is not in the basis raises what is to be least; the last one is minus that.
	costs []float64
	basis []int
	// free is how many variables, the first ones, may come into the basis. Those after them only show the prices of the rows.
	free int
}

// pivotal is the least coefficient that counts as one: less is what rounding leaves of 0.
const pivotal = 1e-10

func newTableau(rows, variables, free int) *tableau {
	t := &tableau{rows: make([][]float64, rows), costs: make([]float64, variables+1), basis: make([]int, rows), free: free}
	for i := range t.rows {
		t.rows[i] = make([]float64, variables+1)
	}
	return t
}

func (t *tableau) last() int { return len(t.costs) - 1 }

// solve goes from solution to better solution, each time by the variable that lowers the costs most. If rounding makes it go round in circles, it
// ends with a solution that is nearly the best.
func (t *tableau) solve() {
	for range 10 * len(t.costs) {
		enters := 0
		for j := range t.free {
			if t.costs[j] < t.costs[enters] {
				enters = j
			}
		}
		row := t.leaves(enters)
		if t.costs[enters] > -pivotal || row < 0 {
			return
		}
		t.pivot(row, enters)
	}
}

// leaves returns the row that bounds a variable most, -1 where none does. Among equal rows it is that with the largest coefficient, by which it
// is safest to divide.
func (t *tableau) leaves(enters int) int {
	row, least := -1, math.Inf(1)
	for i, r := range t.rows {
		if r[enters] <= pivotal {
			continue
		}
		ratio := max(0, r[t.last()]) / r[enters]
		if ratio < least*(1-1e-12) || ratio <= least*(1+1e-12) && r[enters] > t.rows[row][enters] {
			row, least = i, ratio
		}
	}
	return row
}

// pivot solves a row for a variable.
func (t *tableau) pivot(row, enters int) {
	by := t.rows[row][enters]
	for j := range t.rows[row] {
		t.rows[row][j] /= by
	}
	for i := range t.rows {
		if i != row {
			t.eliminate(t.rows[i], row, enters)
		}
	}
	t.eliminate(t.costs, row, enters)
	t.basis[row] = enters
}

func (t *tableau) eliminate(from []float64, row, variable int) {
	of := from[variable]
	if of == 0 {
		return
	}
	for j, x := range t.rows[row] {
		from[j] -= of * x
	}
	from[variable] = 0
}

// values returns the solution.
func (t *tableau) values() []float64 {
	out := make([]float64, t.last())
	for i, b := range t.basis {
		out[b] = max(0, t.rows[i][t.last()])
	}
	return out
}
