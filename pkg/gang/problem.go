package gang

import (
	"cmp"
	"slices"
)

// task is one question to a chart: where a load goes for some reasons.
type task struct {
	chart *chart
	load  load
	// required levels hold; preferred ones are the reasons to prefer a place.
	required, preferred []*division
	// reasons are the preferred levels, and the nodes unless spreading over them costs nothing or a level is as fine.
	reasons []*division
	// ones are the spreads of what is on one cell.
	ones []int
	// byPolicy says that nodes are no reason: members go where the policy puts single pods.
	byPolicy bool
}

// found is the best answer to a task.
type found struct {
	trial *trial
	task  *task
	// level is the first of the preferred levels of which one domain has all, their number where none has.
	level   int
	spreads []int
	takes   int64
	at      int
}

// task returns the question for the first members of the crew. Wishes of NVLink need a chart of islands.
func (t *chart) task(required, preferred []string, nodesCount bool, l load) *task {
	q := &task{chart: t, load: l, byPolicy: !nodesCount}
	for _, key := range required {
		q.required = append(q.required, t.division(key))
	}
	for _, key := range preferred {
		q.preferred = append(q.preferred, t.division(key))
	}
	q.reasons, q.ones = slices.Clone(q.preferred), slices.Repeat([]int{1}, len(q.preferred)+1)
	if nodesCount && !slices.ContainsFunc(q.preferred, (*division).single) {
		q.reasons = append(q.reasons, t.division(nodes))
	}
	q.ones = q.ones[:len(q.reasons)]
	return q
}

// single reports whether each node is a domain of its own, so that counting the nodes tells nothing new. It may say no
// where names are in another order than those of the nodes.
func (v *division) single() bool {
	for i := 1; i < len(v.of); i++ {
		if v.of[i-1] >= v.of[i] {
			return false
		}
	}
	return v.key != NVLink
}

// solve returns the best place for all of the load: in one domain of the first preferred level that has one, else in the
// required domain that has the fewest domains of the preferred levels.
func (q *task) solve() *found {
	for level := range len(q.preferred) + 1 {
		levels := q.required
		if level < len(q.preferred) {
			if _, one := q.preferred[level].whole(); !one {
				continue
			}
			levels = append(slices.Clone(q.required), q.preferred[level])
		}
		if best := q.try(q.candidates(levels)); best != nil {
			best.level = level
			return best
		}
	}
	return nil
}

// candidates returns the domains that may take the load by a first look, the best first: one more than are tried, which
// tells that there are more.
func (q *task) candidates(levels []*division) []*domain {
	all := q.chart.domains(levels)
	var best []*domain
	for i := range all {
		d := &all[i]
		takes, enough := q.chart.suffices(d.cells, &q.load)
		if !enough {
			continue
		}
		q.chart.ground.stats.Domains++
		if len(q.reasons) > 0 {
			d.takes = takes
			q.foresee(d)
		} else if q.chart.cost != nil {
			d.takes = q.chart.cost(d.cells, &q.load)
		}
		if len(best) > q.chart.ground.most {
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

// foresee notes how many domains the load would take in a domain at least.
func (q *task) foresee(d *domain) {
	order, used := d.cells, len(d.cells)
	if used > 1 {
		order, used = q.chart.sequence(d.cells, q.reasons, &q.load)
	}
	d.spreads = q.spreadOf(order[:used])
	if q.chart.cost != nil {
		d.takes = q.chart.cost(order[:used], &q.load)
	}
}

// spreadOf counts the domains of cells, those of the members with a place included.
func (q *task) spreadOf(cells []int32) []int {
	if len(cells) == 1 && len(q.chart.ground.crew.g.Placed) == 0 {
		return q.ones
	}
	counts := make([]int, 0, len(q.reasons))
	for _, v := range q.reasons {
		used := slices.Clone(v.opened)
		for _, i := range cells {
			used = append(used, v.of[i])
		}
		slices.Sort(used)
		counts = append(counts, len(slices.Compact(used)))
	}
	return counts
}

// maxTies bounds the placements of single members that are tried to tell domains apart that are equal but for the
// policy's scores. Larger finds a less fragmenting place among more equal ones, at some two microseconds each.
const maxTies = 4096

// try places the load in the candidates in turn and returns the best. It ends with the first that cannot be better than
// the best so far.
func (q *task) try(list []*domain) *found {
	var best *found
	stats := q.chart.ground.stats
	before := stats.Fits
	for i, d := range list {
		if best != nil && cmp.Or(slices.Compare(d.spreads, best.spreads), cmp.Compare(d.takes, best.takes)) > 0 {
			break
		}
		if i >= q.chart.ground.most || best != nil && stats.Fits-before > maxTies {
			stats.Cut = true
			break
		}
		stats.Tried++
		x, all := q.place(d.cells)
		if !all && len(q.load.counts) > 1 {
			x, all = q.again(d.cells)
		}
		if all {
			next := &found{trial: x, task: q, spreads: x.spreads(q.reasons), takes: d.takes, at: d.at}
			if best == nil || next.beats(best) {
				best = next
			}
		}
	}
	return best
}

// place tries the load in a domain.
func (q *task) place(cells []int32) (x *trial, all bool) {
	x = q.chart.trial()
	order, used := cells, len(cells)
	if len(q.reasons) > 0 && used > 1 {
		order, used = q.chart.sequence(cells, q.reasons, &q.load)
	}
	if q.byPolicy {
		return x, x.scatter(order, used, &q.load)
	}
	return x, x.fill(order, q.chart.scarcest(order, &q.load), &q.load)
}

// again tries the load in a domain in another order: the largest members first, on the cells by name. It finds a place for
// some unlike members for whom place does not.
func (q *task) again(cells []int32) (x *trial, all bool) {
	x = q.chart.trial()
	return x, x.fill(cells, q.chart.bySize(&q.load), &q.load)
}

// beats orders answers of one level: the fewest domains, then the least that is left, then the policy, then the name.
func (a *found) beats(b *found) bool {
	switch order := cmp.Or(slices.Compare(a.spreads, b.spreads), cmp.Compare(a.takes, b.takes)); {
	case order != 0:
		return order < 0
	case a.trial.worth != b.trial.worth:
		return a.trial.better(b.trial)
	}
	return a.at < b.at
}
