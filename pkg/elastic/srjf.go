package elastic

import (
	"cmp"
	"math"
	"slices"
)

// elasticSRJF is elasticFIFO in the order of the time that the jobs still take with their fewest workers: the shortest
// first. Jobs with an unknown time come last, in the order of the queue. It is Elastic-SRJF of Voda.
func elasticSRJF(_ *search, p *pool) []int {
	order := p.inOrder()
	long := func(i int) float64 {
		if remaining := p.entries[i].Remaining; remaining > 0 {
			return remaining
		}
		return math.Inf(1)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(long(a), long(b)) })
	z := p.atLeast(order)
	z.share(order)
	return z.want
}
