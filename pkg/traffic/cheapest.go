package traffic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Option is a variant to choose replicas of.
type Option struct {
	// Capacity is how many requests a second a replica serves within the promise, 0 or more.
	Capacity float64
	// Cost of a replica, in any unit that all options share, above 0.
	Cost int64
	// Least and Most bound the number of replicas: 0 ≤ Least ≤ Most.
	Least, Most int
}

// Choice is how many replicas to have of each option.
type Choice struct {
	Replicas []int
	Cost     int64
	// Capacity of all of them together. If it is below what was wanted, all options have the most replicas that help.
	Capacity float64
	// Cut says that the search was cut, and a cheaper choice may exist.
	Cut bool
}

// budget is the steps that searches may still take together. A step looks at one option, at a few nanoseconds.
type budget struct{ left int }

// maxSteps bounds all searches of a decision together. Larger proves more choices to be the cheapest; four options of thousands of replicas take some
// thousand. perAssignment is the steps that an assignment counts for.
const maxSteps, perAssignment = 5_000_000, 5_000

func newBudget() *budget { return &budget{maxSteps} }

func (b *budget) usedUp() bool { return b.left <= 0 }

// half has a search take at most half of the steps that are left, so that some are left for the next one.
func (b *budget) half(search func(*budget) Choice) Choice {
	mine := &budget{b.left / 2}
	choice := search(mine)
	b.left -= b.left/2 - mine.left
	return choice
}

// Cheapest returns the cheapest numbers of replicas that together have a capacity; of equally cheap ones those with the fewest replicas,
// then those with more of the first options. If all replicas together have less, it returns them all, but only the least number for
// options without any capacity.
func Cheapest(options []Option, wanted float64) Choice { return cheapest(options, wanted, newBudget()) }

func cheapest(options []Option, wanted float64, steps *budget) Choice {
	c := &chooser{options: options, now: make([]int, len(options)), steps: steps}
	short := wanted
	for i, o := range options {
		c.now[i] = o.Least
		c.cost += int64(o.Least) * o.Cost
		short -= float64(o.Least) * o.Capacity
		if o.Capacity > 0 && o.Most > o.Least {
			c.order = append(c.order, i)
		}
	}
	slices.SortStableFunc(c.order, func(a, b int) int {
		return cmp.Compare(float64(options[a].Cost)*options[b].Capacity, float64(options[b].Cost)*options[a].Capacity)
	})
	c.best = slices.Clone(c.now)
	c.bestCost = math.MaxInt64
	if c.search(0, short); c.bestCost == math.MaxInt64 {
		for _, i := range c.order {
			c.best[i] = options[i].Most
		}
	}
	out := Choice{Replicas: c.best, Cut: c.cut}
	for i, n := range c.best {
		out.Cost += int64(n) * options[i].Cost
		out.Capacity += float64(n) * options[i].Capacity
	}
	return out
}

// chooser searches by branch and bound, over the options from the cheapest for their capacity.
type chooser struct {
	options        []Option
	order          []int
	now, best      []int
	cost, bestCost int64
	steps          *budget
	cut            bool
}

// search chooses replicas of the options from a place in the order on, where so much capacity is still short.
func (c *chooser) search(at int, short float64) {
	if c.steps.usedUp() && c.bestCost < math.MaxInt64 {
		c.cut = true
		return
	}
	if short <= slack {
		if c.cost < c.bestCost || c.cost == c.bestCost && comesFirst(c.now, c.best) {
			c.bestCost, c.best = c.cost, slices.Clone(c.now)
		}
		return
	}
	if at == len(c.order) {
		return
	}
	i := c.order[at]
	o, least := &c.options[i], c.now[i]
	most := min(o.Most, least+int(math.Ceil((short-slack)/o.Capacity)))
	for n := most; n >= least; n-- {
		c.now[i], c.cost = n, c.cost+int64(n-least)*o.Cost
		rest := short - float64(n-least)*o.Capacity
		hopeless := float64(c.cost)+c.bound(at+1, rest) > float64(c.bestCost)*(1+1e-12)
		if !hopeless {
			c.search(at+1, rest)
		}
		c.now[i], c.cost = least, c.cost-int64(n-least)*o.Cost
		if hopeless && rest >= 0 { // fewer replicas of this one leave more for dearer ones
			return
		}
	}
}

// slack is by how much less capacity than wanted is enough: what rounding does.
const slack = 1e-9

// bound returns the least cost of so much capacity by the options from a place on, where parts of replicas could be had: +Inf where
// they do not have it.
func (c *chooser) bound(at int, short float64) float64 {
	cost := 0.0
	c.steps.left--
	for _, i := range c.order[min(at, len(c.order)):] {
		if c.steps.left--; short <= slack {
			break
		}
		o := &c.options[i]
		take := min(short, float64(o.Most-o.Least)*o.Capacity)
		cost += take / o.Capacity * float64(o.Cost)
		short -= take
	}
	if short > slack {
		return math.Inf(1)
	}
	return cost
}

// comesFirst reports whether a choice comes before another one that costs the same: with fewer replicas, then with more of the first options.
func comesFirst(choice, other []int) bool {
	sum, sumOther := 0, 0
	for i := range choice {
		sum += choice[i]
		sumOther += other[i]
	}
	return cmp.Or(cmp.Compare(sum, sumOther), slices.Compare(other, choice)) < 0
}

// Validate says what is wrong with an option.
func (o *Option) Validate() error {
	switch {
	case !(o.Capacity >= 0) || math.IsInf(o.Capacity, 1):
		return fmt.Errorf("capacity %v: legal are numbers from 0", o.Capacity)
	case o.Cost < 1:
		return fmt.Errorf("cost %d: legal are numbers from 1", o.Cost)
	case o.Least < 0 || o.Most < o.Least:
		return fmt.Errorf("%d to %d replicas: the least number is from 0 to the most", o.Least, o.Most)
	}
	return nil
}
