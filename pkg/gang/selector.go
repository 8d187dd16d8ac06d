package gang

import (
	"cmp"
	"maps"
	"slices"
)

// sequence returns the cells of a domain in the order of use, and the number of them that the bounds require. For each
// objective in turn it uses as few domains as take the load, then as few nodes.
//
// The order is greedy: of each level it takes the domains with the most capacity first, and as the last one the
// tightest that takes the rest. For like members that is the fewest domains of the first level. On further levels it
// can be more than the fewest, if another choice among equal domains of the first level would need fewer. See
// docs/decisions/0014.
func (t *topology) sequence(cells []int32, objectives []*division, l *load) (order []int32, used int) {
	chosen := slices.Clone(cells)
	var rest []int32
	for at, v := range objectives {
		next, left := t.chooseFewest(chosen, v, objectives[at+1:], l)
		t.sortByCapacity(left, l)
		chosen, rest = next, append(left, rest...)
	}
	return append(chosen, rest...), len(chosen)
}

// sortByCapacity sorts cells by what they take, the most first.
func (t *topology) sortByCapacity(cells []int32, l *load) {
	slices.SortStableFunc(cells, func(a, b int32) int { return cmp.Compare(t.takes(l, b), t.takes(l, a)) })
}

// candidate is one domain of a level with its cells, from which the selector chooses.
type candidate struct {
	domain int32
	cells  []int32
	takes  int64
	// parent is the domain of the next level that contains this one, −1 where several do. The field parentTakes is what
	// the parent takes on as many of its candidates as are needed.
	parent      int32
	parentTakes int64
	// slack is how much more the candidate takes than what is needed: see selector.slack.
	slack int64
	// chosen candidates are in the selection. The selector does not consider excluded ones.
	chosen, excluded bool
}

// selector chooses the fewest domains of a level that take a load.
type selector struct {
	topology    *topology
	laterLevels []*division
	load        *load
	candidates  []candidate
	// used marks the domains of later levels that the selection uses. newDomains marks more of them for a while; kept
	// has none of those marks.
	used, kept [][]bool
	counts     []int
	need       int64
	chosen     []int32
	// onNode is what the chosen candidates take, by the node of their first cell.
	onNode map[int32]int64
}

// chooseFewest chooses the fewest domains of a level that take the load, beginning with those of placed members. The
// result is the cells of the chosen domains in the order of choice, and the other cells.
func (t *topology) chooseFewest(cells []int32, v *division, later []*division, l *load) (chosen, left []int32) {
	sel := &selector{topology: t, laterLevels: later, load: l, need: l.sum, onNode: map[int32]int64{}}
	sel.candidates = t.candidates(cells, v, later, l)
	for _, w := range later {
		used := make([]bool, int(w.named)+len(t.snapshot.nodes))
		for _, d := range w.inUse {
			used[d] = true
		}
		sel.used, sel.kept = append(sel.used, used), append(sel.kept, slices.Clone(used))
	}
	for i := range sel.candidates {
		if slices.Contains(v.inUse, sel.candidates[i].domain) {
			sel.choose(&sel.candidates[i])
		}
	}
	if sel.need > 0 && len(later) > 0 {
		sel.preferOneParent()
	}
	for sel.need > 0 {
		c := sel.lastCandidate()
		if c == nil {
			c = sel.largest()
		}
		if c == nil {
			break
		}
		sel.choose(c)
	}
	for i := range sel.candidates {
		if !sel.candidates[i].chosen {
			left = append(left, sel.candidates[i].cells...)
		}
	}
	return sel.chosen, left
}

// takesBeside returns what a candidate takes beside others that take onNode. Only islands share a host with others, and
// an island is one cell.
func (sel *selector) takesBeside(c *candidate, onNode map[int32]int64) int64 {
	if sel.topology.hosts == nil || len(c.cells) > 1 {
		return c.takes
	}
	node := sel.node(c)
	return min(c.takes, int64(sel.topology.hosts[node])-onNode[node])
}

// takes returns what a candidate takes beside the chosen ones.
func (sel *selector) takes(c *candidate) int64 { return sel.takesBeside(c, sel.onNode) }

// node returns the node of the first cell of a candidate.
func (sel *selector) node(c *candidate) int32 { return sel.topology.cells[c.cells[0]].node }

func (sel *selector) choose(c *candidate) {
	c.chosen = true
	takes := sel.takes(c)
	sel.need -= takes
	if sel.topology.hosts != nil {
		sel.onNode[sel.node(c)] += takes
	}
	sel.chosen = append(sel.chosen, c.cells...)
	for at, w := range sel.laterLevels {
		for _, i := range c.cells {
			sel.used[at][w.of[i]], sel.kept[at][w.of[i]] = true, true
		}
	}
}

// lastCandidate returns the candidate that ends the search. It takes all that is needed, and opens the fewest domains
// of the later levels; see compare for ties.
func (sel *selector) lastCandidate() *candidate {
	var best *candidate
	least := make([]int, 0, len(sel.laterLevels))
	for i := range sel.candidates {
		c := &sel.candidates[i]
		if c.takes < sel.need {
			break
		}
		if c.chosen || c.excluded || sel.takes(c) < sel.need {
			continue
		}
		part := sel.part(c)
		opens := sel.newDomains(part)
		order := slices.Compare(opens, least)
		if best == nil || order <= 0 {
			c.slack = sel.slack(c, part)
		}
		if best == nil || order < 0 || order == 0 && sel.compare(c, best) < 0 {
			best, least = c, append(least[:0], opens...)
		}
	}
	return best
}

// compare orders candidates that end the search and open as many domains: the tighter first. Between candidates of one
// cell the policy's score for the first member comes next, and then the name.
func (sel *selector) compare(a, b *candidate) int {
	if order := cmp.Compare(a.slack, b.slack); order != 0 {
		return order
	}
	if sel.topology.cost == nil && len(a.cells) == 1 && len(b.cells) == 1 {
		if order := cmp.Compare(sel.topology.score(b.cells[0]), sel.topology.score(a.cells[0])); order != 0 {
			return order
		}
	}
	return cmp.Compare(a.domain, b.domain)
}

// slack rates how well a candidate fits what is needed of it, the less the better: its capacity, or what its part
// costs.
func (sel *selector) slack(c *candidate, part []int32) int64 {
	if sel.topology.cost == nil {
		return c.takes
	}
	return sel.topology.cost(part, &load{sel.load.counts, sel.need})
}

// part returns the cells of a candidate that would take what is needed.
func (sel *selector) part(c *candidate) []int32 {
	if len(c.cells) == 1 || len(sel.laterLevels) == 0 {
		return c.cells
	}
	rest := load{sel.load.counts, sel.need}
	order, used := sel.topology.sequence(c.cells, sel.laterLevels, &rest)
	return order[:used]
}

// largest returns the candidate that takes the most; of equal ones it opens the fewest domains of the later levels. nil
// stands for candidates without capacity.
func (sel *selector) largest() *candidate {
	var best *candidate
	most := int64(1)
	least := make([]int, 0, len(sel.laterLevels))
	for i := range sel.candidates {
		c := &sel.candidates[i]
		if c.takes < most {
			break
		}
		takes := sel.takes(c)
		if c.chosen || c.excluded || takes < most {
			continue
		}
		opens := sel.newDomains(c.cells)
		if best == nil || takes > most || slices.Compare(opens, least) < 0 {
			best, most, least = c, takes, append(least[:0], opens...)
		}
		if takes == c.takes && !slices.ContainsFunc(least, func(n int) bool { return n > 0 }) {
			break
		}
	}
	return best
}

// newDomains counts the domains of each later level that cells would add to the selection. The next call overwrites the
// result.
func (sel *selector) newDomains(cells []int32) []int {
	sel.counts = sel.counts[:0]
	for at, w := range sel.laterLevels {
		used, count := sel.used[at], 0
		for _, i := range cells {
			if !used[w.of[i]] {
				used[w.of[i]] = true
				count++
			}
		}
		sel.counts = append(sel.counts, count)
		if count > 0 {
			sel.unmark(at, w, cells)
		}
	}
	return sel.counts
}

// unmark removes the marks that newDomains made for cells. The marks of chosen cells and of placed members stay.
func (sel *selector) unmark(at int, w *division, cells []int32) {
	for _, i := range cells {
		sel.used[at][w.of[i]] = sel.kept[at][w.of[i]]
	}
}

// candidates groups cells by domain. The groups are in the order of capacity, the most first, then of cost, the least
// first, then of name.
func (t *topology) candidates(cells []int32, v *division, later []*division, l *load) []candidate {
	sorted := slices.Clone(cells)
	slices.SortStableFunc(sorted, func(a, b int32) int { return cmp.Compare(v.of[a], v.of[b]) })
	var candidates []candidate
	for at, i := range sorted {
		if at == 0 || v.of[i] != v.of[sorted[at-1]] {
			candidates = append(candidates, candidate{domain: v.of[i], cells: sorted[at:at]})
		}
		c := &candidates[len(candidates)-1]
		c.cells = c.cells[:len(c.cells)+1]
	}
	for at := range candidates {
		c := &candidates[at]
		c.takes = t.takesTogether(l, c.cells)
		c.parent = parent(c.cells, later)
	}
	if t.cost != nil {
		for at := range candidates {
			candidates[at].slack = t.cost(candidates[at].cells, &load{l.counts, candidates[at].takes})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.takes, a.takes), cmp.Compare(a.slack, b.slack)) })
	return candidates
}

// parent returns the domain of the next level that contains all cells, −1 where there is none.
func parent(cells []int32, later []*division) int32 {
	if len(later) == 0 {
		return -1
	}
	d := later[0].of[cells[0]]
	if slices.ContainsFunc(cells, func(i int32) bool { return later[0].of[i] != d }) {
		return -1
	}
	return d
}

// preferOneParent prefers candidates of one parent domain. Let m be the least number of candidates that take what is
// needed. If m candidates of one parent take it, all candidates of other parents are excluded. Otherwise candidates
// come first whose parent takes the most on m candidates.
func (sel *selector) preferOneParent() {
	m, sum := 0, int64(0)
	for i := range sel.candidates {
		if c := &sel.candidates[i]; !c.chosen && sum < sel.need {
			sum += c.takes
			m++
		}
	}
	takes := sel.takesOfParents(m)
	best := int32(-1)
	for i := range sel.candidates {
		c := &sel.candidates[i]
		c.parentTakes = takes[c.parent]
		if !c.chosen && c.parentTakes >= sel.need && (best < 0 || sel.tighter(c.parent, best, takes)) {
			best = c.parent
		}
	}
	for i := range sel.candidates {
		sel.candidates[i].excluded = best >= 0 && sel.candidates[i].parent != best
	}
	slices.SortStableFunc(sel.candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.takes, a.takes), cmp.Compare(b.parentTakes, a.parentTakes))
	})
}

// takesOfParents returns what each parent takes on its m largest candidates.
func (sel *selector) takesOfParents(m int) map[int32]int64 {
	takes, count, onNode := map[int32]int64{}, map[int32]int{}, maps.Clone(sel.onNode)
	for i := range sel.candidates {
		c := &sel.candidates[i]
		if c.chosen || c.parent < 0 || count[c.parent] == m {
			continue
		}
		more := sel.takesBeside(c, onNode)
		onNode[sel.node(c)] += more
		count[c.parent]++
		takes[c.parent] += more
	}
	return takes
}

// tighter orders parent domains that take all that is needed: those in use first, then those that take less, then by
// name.
func (sel *selector) tighter(a, b int32, takes map[int32]int64) bool {
	if used := sel.used[0]; used[a] != used[b] {
		return used[a]
	}
	return cmp.Or(cmp.Compare(takes[a], takes[b]), cmp.Compare(a, b)) < 0
}
