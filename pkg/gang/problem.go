package gang

import (
	"cmp"
	"slices"
)

// problem is one question to a topology: where does a load go, given levels and objectives?
type problem struct {
	topology *topology
	load     load
	// required levels must hold. preferred levels are objectives.
	required, preferred []*division
	// objectives are the preferred levels and the nodes. Nodes are none where a spread over them costs nothing, or
	// where a preferred level has each node as a domain.
	objectives []*division
	// ones are the spreads of a load on one cell.
	ones []int
	// byPolicy says that the number of nodes is no objective: members go where the policy puts single pods.
	byPolicy bool
}

// solution is the best answer to a problem.
type solution struct {
	attempt *attempt
	problem *problem
	// level is the first preferred level of which one domain has the whole load. Without such a domain it is the number
	// of levels.
	level   int
	spreads []int
	takes   int64
	index   int
}

// problem returns the problem of a load. NVLink among the levels needs a topology of islands.
func (t *topology) problem(required, preferred []string, nodesCount bool, l load) *problem {
	q := &problem{topology: t, load: l, byPolicy: !nodesCount}
	for _, key := range required {
		q.required = append(q.required, t.division(key))
	}
	for _, key := range preferred {
		q.preferred = append(q.preferred, t.division(key))
	}
	q.objectives, q.ones = slices.Clone(q.preferred), slices.Repeat([]int{1}, len(q.preferred)+1)
	if nodesCount && !slices.ContainsFunc(q.preferred, (*division).onePerNode) {
		q.objectives = append(q.objectives, t.division(nodes))
	}
	q.ones = q.ones[:len(q.objectives)]
	return q
}

// onePerNode reports whether each node is a domain of its own, so that counting nodes says nothing new. The answer may
// be false where the names have another order than the nodes.
func (v *division) onePerNode() bool {
	for i := 1; i < len(v.of); i++ {
		if v.of[i-1] >= v.of[i] {
			return false
		}
	}
	return v.key != NVLink
}

// solve returns the best place for the whole load: in one domain of the first preferred level that has one. Otherwise
// it is in the required domain that uses the fewest domains of the preferred levels.
func (q *problem) solve() *solution {
	for level := range len(q.preferred) + 1 {
		levels := q.required
		if level < len(q.preferred) {
			if _, one := q.preferred[level].onlyDomain(); !one {
				continue
			}
			levels = append(slices.Clone(q.required), q.preferred[level])
		}
		if best := q.try(q.domainsByBound(levels)); best != nil {
			best.level = level
			return best
		}
	}
	return nil
}

// domainsByBound returns the domains whose bounds admit the load, the best first. The list has one more than the search
// tries, so that the search knows that there are more.
func (q *problem) domainsByBound(levels []*division) []*domain {
	all := q.topology.domains(levels)
	var best []*domain
	for i := range all {
		d := &all[i]
		takes, sufficient := q.topology.suffices(d.cells, &q.load)
		if !sufficient {
			continue
		}
		q.topology.snapshot.stats.Domains++
		if len(q.objectives) > 0 {
			d.takes = takes
			q.boundSpreads(d)
		} else if q.topology.cost != nil {
			d.takes = q.topology.cost(d.cells, &q.load)
		}
		if len(best) > q.topology.snapshot.maxDomains {
			if best[len(best)-1].compare(d) < 0 {
				continue
			}
			best = best[:len(best)-1]
		}
		at, _ := slices.BinarySearchFunc(best, d, func(o, d *domain) int { return o.compare(d) })
		best = slices.Insert(best, at, d)
	}
	return best
}

// boundSpreads sets the least number of domains that the load uses in a domain.
func (q *problem) boundSpreads(d *domain) {
	order, used := d.cells, len(d.cells)
	if used > 1 {
		order, used = q.topology.sequence(d.cells, q.objectives, &q.load)
	}
	d.spreads = q.spreadOf(order[:used])
	if q.topology.cost != nil {
		d.takes = q.topology.cost(order[:used], &q.load)
	}
}

// spreadOf counts the domains of cells, those of the placed members included.
func (q *problem) spreadOf(cells []int32) []int {
	if len(cells) == 1 && len(q.topology.snapshot.members.g.Placed) == 0 {
		return q.ones
	}
	counts := make([]int, 0, len(q.objectives))
	for _, v := range q.objectives {
		used := slices.Clone(v.inUse)
		for _, i := range cells {
			used = append(used, v.of[i])
		}
		slices.Sort(used)
		counts = append(counts, len(slices.Compact(used)))
	}
	return counts
}

// maxTies bounds the placements of single members that try compares where domains differ in the policy's scores only. A
// larger bound finds a place that fragments less among more equal ones, at some two microseconds each.
const maxTies = 4096

// try places the load in each domain in turn and returns the best solution. The search ends at the first domain that
// cannot be better than the best solution so far.
func (q *problem) try(list []*domain) *solution {
	var best *solution
	stats := q.topology.snapshot.stats
	before := stats.Fits
	for i, d := range list {
		if best != nil && cmp.Or(slices.Compare(d.spreads, best.spreads), cmp.Compare(d.takes, best.takes)) > 0 {
			break
		}
		if i >= q.topology.snapshot.maxDomains || best != nil && stats.Fits-before > maxTies {
			stats.Cut = true
			break
		}
		stats.Tried++
		x, all := q.place(d.cells)
		if !all && len(q.load.counts) > 1 {
			x, all = q.placeLargestFirst(d.cells)
		}
		if all {
			next := &solution{attempt: x, problem: q, spreads: x.spreads(q.objectives), takes: d.takes, index: d.index}
			if best == nil || next.beats(best) {
				best = next
			}
		}
	}
	return best
}

// place tries the load in a domain.
func (q *problem) place(cells []int32) (x *attempt, all bool) {
	x = q.topology.attempt()
	order, used := cells, len(cells)
	if len(q.objectives) > 0 && used > 1 {
		order, used = q.topology.sequence(cells, q.objectives, &q.load)
	}
	if q.byPolicy {
		return x, x.fillByPolicy(order, used, &q.load)
	}
	return x, x.fill(order, q.topology.scarcest(order, &q.load), &q.load)
}

// placeLargestFirst tries the load in a domain in another order: the largest members first, on the cells by name. This
// order finds a place for some unlike members for which place does not.
func (q *problem) placeLargestFirst(cells []int32) (x *attempt, all bool) {
	x = q.topology.attempt()
	return x, x.fill(cells, q.topology.bySize(&q.load), &q.load)
}

// beats orders solutions of one level: by the fewest domains, then by the least room that is left, by the policy, by
// name.
func (a *solution) beats(b *solution) bool {
	switch order := cmp.Or(slices.Compare(a.spreads, b.spreads), cmp.Compare(a.takes, b.takes)); {
	case order != 0:
		return order < 0
	case a.attempt.scoreSum != b.attempt.scoreSum:
		return a.attempt.better(b.attempt)
	}
	return a.index < b.index
}
