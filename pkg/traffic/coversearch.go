package traffic

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// coverSearch finds the cheapest replicas that are worth at least 1 by all covers, by branch and bound over the options from the cheapest for
// their worth. It begins with a best choice.
type coverSearch struct {
	options []Option
	covers  [][]float64
	order   []int
	// orders are those by single covers, places those of the options in order.
	orders         [][]int
	places         []int
	now, best      []int
	cost, bestCost int64
	steps          *budget
	cut            bool
}

func (s *coverSearch) run() []int {
	s.now = make([]int, len(s.options))
	short := make([]float64, len(s.covers))
	for c := range short {
		short[c] = 1
	}
	for i, o := range s.options {
		s.now[i] = o.Least
		s.cost += int64(o.Least) * o.Cost
		for c := range short {
			short[c] -= float64(o.Least) * s.covers[c][i]
		}
	}
	for i, n := range s.best {
		s.bestCost += int64(n) * s.options[i].Cost
	}
	for c := range s.covers {
		s.orders = append(s.orders, s.byWorth(func(i int) float64 { return s.covers[c][i] }))
	}
	s.order = s.byWorth(func(i int) (sum float64) {
		for c := range s.covers {
			sum += s.covers[c][i]
		}
		return sum
	})
	s.places = make([]int, len(s.options))
	for place, i := range s.order {
		s.places[i] = place
	}
	s.search(0, short)
	return s.best
}

// byWorth returns the options that may have more replicas and are worth something, from the cheapest for that.
func (s *coverSearch) byWorth(worth func(i int) float64) (order []int) {
	for i, o := range s.options {
		if worth(i) > 0 && o.Most > o.Least {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(float64(s.options[a].Cost)*worth(b), float64(s.options[b].Cost)*worth(a))
	})
	return order
}

// search chooses replicas of the options from a place in the order on, where so much is still short by each cover.
func (s *coverSearch) search(at int, short []float64) {
	if enough(short) {
		if s.cost < s.bestCost || s.cost == s.bestCost && comesFirst(s.now, s.best) {
			s.bestCost, s.best = s.cost, slices.Clone(s.now)
		}
		return
	}
	if at == len(s.order) {
		return
	}
	i := s.order[at]
	o, least := &s.options[i], s.now[i]
	most := least
	for c, x := range short {
		if worth := s.covers[c][i]; worth > 0 && x > slack {
			most = max(most, least+int(min(math.Ceil((x-slack)/worth), float64(o.Most-least))))
		}
	}
	rest := make([]float64, len(short))
	bound := func(n int) float64 {
		for c := range rest {
			rest[c] = short[c] - float64(n-least)*s.covers[c][i]
		}
		return float64(s.cost+int64(n-least)*o.Cost) + s.bound(at+1, rest)
	}
	try := func(n int) bool {
		if s.cut = s.cut || s.steps.usedUp(); s.cut || bound(n) > float64(s.bestCost)*(1+1e-12) {
			return false
		}
		before := s.cost
		s.now[i], s.cost = n, s.cost+int64(n-least)*o.Cost
		s.search(at+1, slices.Clone(rest))
		s.now[i], s.cost = least, before
		return true
	}
	// The bound is convex in the number: those that may be part of a better choice are in a row around that with the least bound.
	first := least + sort.Search(most-least, func(more int) bool { return bound(least+more) <= min(bound(least+more+1), math.MaxFloat64) })
	for n := first; n <= most && try(n); {
		n++
	}
	for n := first - 1; n >= least && try(n); {
		n--
	}
}

func enough(short []float64) bool {
	for _, x := range short {
		if x > slack {
			return false
		}
	}
	return true
}

// bound returns the least cost of what is short by the worst cover, by the options from a place on, where parts of replicas could be had: +Inf
// where they do not have it.
func (s *coverSearch) bound(at int, short []float64) (highest float64) {
	for c, x := range short {
		cost := 0.0
		s.steps.left--
		for _, i := range s.orders[c] {
			if x <= slack {
				break
			}
			s.steps.left--
			if o := &s.options[i]; s.places[i] >= at {
				take := min(x, float64(o.Most-o.Least)*s.covers[c][i])
				cost += take / s.covers[c][i] * float64(o.Cost)
				x -= take
			}
		}
		if x > slack {
			return math.Inf(1)
		}
		highest = max(highest, cost)
	}
	return highest
}
