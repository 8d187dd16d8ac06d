package traffic

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// CheapestFor returns the cheapest numbers of replicas with which [Assign] makes no variant busier than it may be; of equally cheap ones those
// with the fewest replicas, then those with more of the first options. The capacities of the options do not count. If all replicas together
// are not enough for a class, it counts for as many requests as they serve: the variants that it needs have the most replicas, and the others
// what the other classes need. The capacity of the choice is how many requests a second of such a mix it serves.
//
// The number of replicas is enough where it covers the requests at all values of the classes (Farkas' lemma): at each, the replicas together are
// worth at least as much as the requests. So the search covers a few values, and adds those at which its choice is not enough (Benders'
// decomposition). With one class there is one value, and the choice is that of [Cheapest].
//
// If the steps of the search are used up, the choice is enough all the same: it is the one that the search began with, which gives each class
// the options that are the cheapest for it.
func CheapestFor(options []Option, mix *Mix) Choice { return cheapestFor(options, mix, newBudget()) }

func cheapestFor(options []Option, mix *Mix, steps *budget) Choice {
	c := &coverer{options: options, mix: arriving(mix), steps: steps}
	c.serveWhatCanBe()
	out := Choice{Replicas: make([]int, len(options))}
	for i, o := range options {
		out.Replicas[i] = o.Least
	}
	if len(c.mix.Rates) > 0 {
		c.coverCosts()
		out.Replicas = c.choose()
	}
	out.Cost, out.Cut = c.cost(out.Replicas), c.cut
	out.Capacity = capacityFor(mix, out.Replicas)
	return out
}

// arriving returns the classes of which requests arrive.
func arriving(mix *Mix) *Mix {
	out := &Mix{}
	for k, r := range mix.Rates {
		if r > 0 {
			out.Rates, out.Loads = append(out.Rates, r), append(out.Loads, mix.Loads[k])
		}
	}
	return out
}

// capacityFor returns how many requests a second of a mix replicas serve within the promise.
func capacityFor(mix *Mix, replicas []int) float64 {
	sum := sumOf(mix.Rates)
	if sum == 0 {
		return 0
	}
	busy := busiest(mix, replicas).Busy
	if busy <= 1+slack {
		busy = min(busy, 1) // what is enough serves all
	}
	return sum / busy
}

// coverer chooses replicas.
type coverer struct {
	options []Option
	// mix has the classes of which requests arrive, with the rates that can be served.
	mix *Mix
	// covers say what a replica of each option is worth at some values of the classes, where the requests are worth 1.
	covers [][]float64
	steps  *budget
	cut    bool
}

// busiest says how busy replicas are.
func (c *coverer) busiest(replicas []int) Assignment {
	c.steps.left -= perAssignment
	return busiest(c.mix, replicas)
}

// isEnough reports whether replicas are known to be enough. If they are not, it covers the requests at the values that show it. Without
// steps nothing is known.
func (c *coverer) isEnough(replicas []int) bool {
	for _, prices := range c.covers {
		worth := 0.0
		for i, n := range replicas {
			worth += float64(n) * prices[i]
		}
		if worth < 1-slack {
			return false
		}
	}
	if c.steps.usedUp() {
		c.cut = true
		return false
	}
	a := c.busiest(replicas)
	if a.Busy > 1+slack {
		c.cover(a.values)
	}
	return a.Busy <= 1+slack
}

// serveWhatCanBe lowers the rates of the classes for which the most replicas are not enough. Each time the classes that make the busiest variants
// too busy are lowered; those that need no such variant keep their rates.
func (c *coverer) serveWhatCanBe() {
	most := make([]int, len(c.options))
	for i := range c.options {
		most[i] = c.options[i].Most
	}
	for range 2 * len(c.mix.Rates) {
		a := c.busiest(most)
		if a.Busy <= 1+slack {
			return
		}
		for k, value := range a.values {
			if value > leastValue*slices.Max(a.values) {
				c.mix.Rates[k] /= a.Busy * (1 + slack)
			}
		}
		c.mix = arriving(c.mix)
	}
}

// coverCosts covers the requests at what the classes cost at least, where parts of replicas could be had, then each class alone.
func (c *coverer) coverCosts() {
	costs := make([]float64, len(c.mix.Rates))
	for k, r := range c.mix.Rates {
		costs[k] = math.Inf(1)
		for i, load := range c.mix.Loads[k] {
			if load > 0 && c.options[i].Most > 0 {
				costs[k] = min(costs[k], float64(c.options[i].Cost)*r*load)
			}
		}
	}
	c.cover(costs)
	for k := range costs {
		alone := make([]float64, len(costs))
		alone[k] = 1
		c.cover(alone)
	}
}

// cover notes what the replicas must be worth at values of the classes.
func (c *coverer) cover(values []float64) {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	prices := pricesOf(c.mix, values)
	for i := range prices {
		prices[i] /= sum
	}
	c.covers = append(c.covers, prices)
}

// pricesOf returns what a replica of each variant is worth at values of the classes: as much as the part of a class that it serves, of that class
// for which this is most.
func pricesOf(mix *Mix, values []float64) []float64 {
	prices := make([]float64, len(mix.Loads[0]))
	for k, value := range values {
		for i, load := range mix.Loads[k] {
			if load > 0 && value > 0 {
				prices[i] = max(prices[i], value/(mix.Rates[k]*load))
			}
		}
	}
	return prices
}

// choose returns the cheapest choice that is enough.
func (c *coverer) choose() []int {
	enough := c.reduced()
	for {
		s := &coverSearch{options: c.options, covers: c.covers, best: enough, steps: c.steps}
		replicas := s.run()
		c.cut = c.cut || s.cut
		a := c.busiest(replicas)
		if a.Busy <= 1+slack {
			return replicas
		}
		if c.steps.usedUp() {
			c.cut = true
			return enough
		}
		c.cover(a.values)
		enough = c.cheaper(enough, replicas)
	}
}

// cheaper returns a choice that is enough or, where that costs less, one that is nearly another choice, which is not enough.
func (c *coverer) cheaper(enough, other []int) []int {
	both := make([]int, len(enough))
	for i := range both {
		both[i] = max(enough[i], other[i])
	}
	if both = c.without(both); c.cost(both) < c.cost(enough) {
		return both
	}
	return enough
}

func (c *coverer) cost(replicas []int) (sum int64) {
	for i, n := range replicas {
		sum += int64(n) * c.options[i].Cost
	}
	return sum
}

// reduced returns a choice that is enough, for the search to begin with: each class on the options that are the cheapest for it, or the most
// replicas of all where that is not enough; then without those that are not needed.
func (c *coverer) reduced() []int {
	replicas := c.filled()
	if c.busiest(replicas).Busy > 1+slack {
		for i := range replicas {
			replicas[i] = c.options[i].Most
		}
	}
	return c.without(replicas)
}

// without takes the replicas away that are not needed, option after option, from the dearest.
func (c *coverer) without(replicas []int) []int {
	order := make([]int, len(c.options))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.options[b].Cost, c.options[a].Cost) })
	for _, i := range order {
		replicas[i] = fewest(c.options[i].Least, replicas[i], func(n int) bool {
			replicas[i] = n
			return c.isEnough(replicas)
		})
	}
	return replicas
}

// fewest returns the least number that is enough, where the most is: it is looked for from there on, since few numbers are less.
func fewest(least, most int, enough func(n int) bool) int {
	for step := 1; most > least; step *= 2 {
		next := max(least, most-step)
		if !enough(next) {
			return next + 1 + sort.Search(most-next-1, func(more int) bool { return enough(next + 1 + more) })
		}
		most = next
	}
	return most
}

// filled returns the replicas of each class on the options that are the cheapest for it and have room, class after class.
func (c *coverer) filled() []int {
	busy, replicas := make([]float64, len(c.options)), make([]int, len(c.options))
	for k, rest := range c.mix.Rates {
		loads := c.mix.Loads[k]
		order := make([]int, 0, len(loads))
		for i, load := range loads {
			if load > 0 {
				order = append(order, i)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(float64(c.options[a].Cost)*loads[a], float64(c.options[b].Cost)*loads[b])
		})
		for _, i := range order {
			taken := min(rest, (float64(c.options[i].Most)-busy[i])/loads[i])
			busy[i] += taken * loads[i]
			rest -= taken
		}
	}
	for i, o := range c.options {
		replicas[i] = min(max(int(math.Ceil(busy[i])), o.Least), o.Most)
	}
	return replicas
}

func numbers(replicas []int) []float64 {
	out := make([]float64, len(replicas))
	for i, n := range replicas {
		out[i] = float64(n)
	}
	return out
}
