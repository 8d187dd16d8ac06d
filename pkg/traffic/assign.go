package traffic

import (
	"math"
	"slices"
)

// Mix is what arrives of each class of requests, and what that asks of the replicas of each variant.
type Mix struct {
	// Rates are requests a second, by class.
	Rates []float64
	// Loads say which part of a replica one request a second of a class takes, by class and variant, of what the replica may serve within the
	// promise: with 10 requests a second of the class alone it is full at a load of 0.1. At 0 the variant does not serve the class.
	Loads [][]float64
}

// Assignment is a division of the requests of each class.
type Assignment struct {
	// Parts of the requests by class and variant, with the sum 1 for each class. They are all 0 for a class that no replica serves.
	Parts [][]float64
	// Busy is the load of the busiest variant for each of its replicas. Above 1 the promise breaks. It is +Inf where requests of a class arrive
	// that no replica serves.
	Busy float64
	// values say which classes make it so busy, with the sum Busy, or 1 where that is +Inf: those that are above 0 keep their variants busy whatever is
	// done with the others.
	values []float64
}

// leastRate is the part of the highest rate that a class counts for at least, so that it has a division before its first requests.
const leastRate = 1e-6

// Assign divides the requests of each class over the variants, so that the busiest variant is as little busy as can be, and then the next one,
// for the given numbers of replicas: a class goes where it is served best compared with the others. It is the generalisation of
// [Proportional] to several classes.
//
// Example: long requests load a replica of a large GPU by 0.1 and short ones by 0.01, a small GPU serves only short ones and is loaded by 0.02. With a
// replica of each, 6 long and 60 short requests a second, the long ones load the large GPU by 0.6, and a part 2/3 of the short ones the
// small GPU by 0.8, as the rest of them does the large one.
func Assign(mix *Mix, replicas []float64) Assignment {
	a, open := newAssigner(mix, replicas)
	for first := a.out.Busy == 0; len(open) > 0; first = false {
		open = a.level(open, first)
	}
	if a.out.Busy == 0 {
		a.out.Busy = a.busiest()
	}
	return a.out
}

// busiest returns an assignment of which only Busy and values count: that takes a part of the time.
func busiest(mix *Mix, replicas []int) Assignment {
	a, open := newAssigner(mix, numbers(replicas))
	if a.out.Busy == 0 {
		if len(open) > 0 {
			a.level(open, true)
		}
		a.out.Busy = a.busiest()
	}
	return a.out
}

// newAssigner returns an assigner, and the classes that have a variant to go to. Busy is set only where requests of another class arrive.
func newAssigner(mix *Mix, replicas []float64) (a *assigner, open []int) {
	a = &assigner{mix: mix, replicas: replicas, rates: make([]float64, len(mix.Rates)), closed: make([]bool, len(replicas))}
	a.out = Assignment{Parts: make([][]float64, len(mix.Rates)), values: make([]float64, len(mix.Rates))}
	highest := 0.0
	for _, r := range mix.Rates {
		highest = max(highest, r)
	}
	if highest == 0 {
		highest = 1
	}
	for k, r := range mix.Rates {
		a.out.Parts[k] = make([]float64, len(replicas))
		if a.rates[k] = max(r, leastRate*highest); a.served(k) {
			open = append(open, k)
		} else if r > 0 && a.out.Busy == 0 {
			a.out.Busy, a.out.values[k] = math.Inf(1), 1
		}
	}
	return a, open
}

// assigner makes one assignment. Variants that are closed have got all that they get.
type assigner struct {
	mix      *Mix
	replicas []float64
	rates    []float64
	closed   []bool
	out      Assignment
}

// served reports whether a replica serves a class.
func (a *assigner) served(class int) bool {
	for i := range a.replicas {
		if a.serves(class, i) {
			return true
		}
	}
	return false
}

func (a *assigner) serves(class, i int) bool {
	return a.mix.Loads[class][i] > 0 && a.replicas[i] > 0 && !a.closed[i]
}

// level makes the busiest variants as little busy as can be, and closes them. It returns the classes that do not need them: those are divided
// over the other variants. At first it notes which classes make the busiest ones so busy.
func (a *assigner) level(classes []int, first bool) (others []int) {
	t := a.start(classes)
	t.solve()
	values, price := make([]float64, len(classes)), t.last()-len(classes)
	for at, k := range classes {
		values[at] = max(0, -t.costs[price+at]) * a.alone(k, a.best(k))
		if first {
			a.out.values[k] = values[at]
		}
	}
	return a.close(classes, values, t.values())
}

// start has each class on the variant that it makes least busy. The variables are how busy each class makes each variant; by how much less busy
// each variant is than the busiest; how busy that is; and one for the price of each class. All are parts of what the largest class makes its
// best variant.
func (a *assigner) start(classes []int) *tableau {
	n, size := len(a.replicas), 0.0
	for _, k := range classes {
		size = max(size, a.alone(k, a.best(k)))
	}
	slack, most := len(classes)*n, len(classes)*n+n
	t := newTableau(len(classes)+n, most+1+len(classes), most+1)
	variants := t.rows[len(classes):]
	for at, k := range classes {
		best, row := a.best(k), t.rows[at]
		row[most+1+at], row[t.last()], t.basis[at] = 1, a.alone(k, best)/size, at*n+best
		for i := range a.replicas {
			if a.serves(k, i) {
				row[at*n+i], variants[i][at*n+i] = a.alone(k, best)/a.alone(k, i), 1
			}
		}
		t.eliminate(variants[best], at, at*n+best)
	}
	busiest := 0
	for i, row := range variants {
		row[slack+i], row[most], t.basis[len(classes)+i] = 1, -1, slack+i
		if row[t.last()] < variants[busiest][t.last()] {
			busiest = i
		}
	}
	t.costs[most] = 1
	t.pivot(len(classes)+busiest, most)
	return t
}

// best returns the variant that a class makes least busy.
func (a *assigner) best(class int) int {
	best := -1
	for i := range a.replicas {
		if a.serves(class, i) && (best < 0 || a.alone(class, i) < a.alone(class, best)) {
			best = i
		}
	}
	return best
}

// leastValue is the part of the highest value below which a class does not make variants busy: what rounding does.
const leastValue = 1e-9

// close divides the classes that make variants busy, and closes these variants. It returns those of the other classes that still have a
// variant to go to: all of them, but for rounding.
func (a *assigner) close(classes []int, values, taken []float64) (others []int) {
	n, least := len(a.replicas), leastValue*slices.Max(values)
	for at, k := range classes {
		if values[at] < least {
			continue
		}
		a.divide(k, taken[at*n:][:n])
		for i, y := range taken[at*n:][:n] {
			a.closed[i] = a.closed[i] || y > pivotal
		}
	}
	for at, k := range classes {
		switch {
		case values[at] >= least:
		case a.served(k):
			others = append(others, k)
		default:
			a.divide(k, taken[at*n:][:n])
		}
	}
	return others
}

// alone is how busy a variant is with all requests of a class.
func (a *assigner) alone(class, i int) float64 {
	return a.mix.Loads[class][i] * a.rates[class] / a.replicas[i]
}

// divide sets the parts of a class from the parts of the variants that it takes.
func (a *assigner) divide(class int, taken []float64) {
	sum := 0.0
	for i, y := range taken {
		if y > 0 && a.mix.Loads[class][i] > 0 && a.replicas[i] > 0 {
			a.out.Parts[class][i] = y / a.alone(class, i)
			sum += a.out.Parts[class][i]
		}
	}
	for i := range taken {
		if sum > 0 {
			a.out.Parts[class][i] /= sum
		}
	}
}

// busiest returns the load of the busiest variant.
func (a *assigner) busiest() (busiest float64) {
	for i, n := range a.replicas {
		if n > 0 {
			busiest = max(busiest, loadOf(a.mix, a.out.Parts, i)/n)
		}
	}
	return busiest
}

// loadOf returns how many replicas of a variant a division keeps busy.
func loadOf(mix *Mix, parts [][]float64, i int) (sum float64) {
	for k, r := range mix.Rates {
		sum += r * parts[k][i] * mix.Loads[k][i]
	}
	return sum
}
