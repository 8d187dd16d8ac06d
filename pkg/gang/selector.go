package gang

import (
	"cmp"
	"slices"
)

// sequence returns the cells of a domain in the order in which members are put on them, those that are used first, and
// how many that are by the bounds: for each level in turn as few domains as take the load, then as few nodes.
//
// Greedy: of each level the domains that take the most come first and the last one is the tightest that takes the rest.
// For members that are alike that is the fewest domains of the first level; of the further levels it can be more than
// the fewest, where a choice among equal domains of the first would need them less. See docs/decisions/0014.
func (t *chart) sequence(cells []int32, reasons []*division, l *load) (order []int32, used int) {
	chosen := slices.Clone(cells)
	var rest []int32
	for at, v := range reasons {
		next, left := t.narrow(chosen, v, reasons[at+1:], l)
		t.fullest(left, l)
		chosen, rest = next, append(left, rest...)
	}
	return append(chosen, rest...), len(chosen)
}

// fullest sorts cells: those that take the most first.
func (t *chart) fullest(cells []int32, l *load) {
	slices.SortStableFunc(cells, func(a, b int32) int { return cmp.Compare(t.takes(l, b), t.takes(l, a)) })
}

// pile is the cells of one domain of a level, as narrow picks among them.
type pile struct {
	domain int32
	cells  []int32
	takes  int64
	// parent is the domain of the next level in which it lies, −1 for several, and around what that takes on as many
	// piles as are needed.
	parent int32
	around int64
	// loose is how well it fits what is needed, once it is asked for.
	loose int64
	// taken piles are chosen, barred ones are not looked at.
	taken, barred bool
}

// picking is the choice of the fewest domains of a level.
type picking struct {
	chart *chart
	later []*division
	load  *load
	piles []pile
	// used marks the domains of later levels that are used; opens marks more of them for a while, which kept does not.
	used, kept [][]bool
	counts     []int
	need       int64
	chosen     []int32
}

// narrow chooses the fewest domains of a level that take the load, those first that members with a place use, and
// returns their cells in the order of choice and the others.
func (t *chart) narrow(cells []int32, v *division, later []*division, l *load) (chosen, left []int32) {
	k := &picking{chart: t, later: later, load: l, piles: t.piles(cells, v, later, l), need: l.sum}
	for _, w := range later {
		used := make([]bool, int(w.named)+len(t.ground.nodes))
		for _, d := range w.opened {
			used[d] = true
		}
		k.used, k.kept = append(k.used, used), append(k.kept, slices.Clone(used))
	}
	for i := range k.piles {
		if slices.Contains(v.opened, k.piles[i].domain) {
			k.pick(&k.piles[i])
		}
	}
	if k.need > 0 && len(later) > 0 {
		k.gather()
	}
	for k.need > 0 {
		p := k.last()
		if p == nil {
			p = k.fullest()
		}
		if p == nil {
			break
		}
		k.pick(p)
	}
	for i := range k.piles {
		if !k.piles[i].taken {
			left = append(left, k.piles[i].cells...)
		}
	}
	return k.chosen, left
}

func (k *picking) pick(p *pile) {
	p.taken = true
	k.need -= p.takes
	k.chosen = append(k.chosen, p.cells...)
	for at, w := range k.later {
		for _, i := range p.cells {
			k.used[at][w.of[i]], k.kept[at][w.of[i]] = true, true
		}
	}
}

// last returns the pile that ends the search: of those that take all that is needed the one that opens the fewest domains
// of the later levels; see compare for equals.
func (k *picking) last() *pile {
	var best *pile
	least := make([]int, 0, len(k.later))
	for i := range k.piles {
		p := &k.piles[i]
		if p.takes < k.need {
			break
		}
		if p.taken || p.barred {
			continue
		}
		part := k.part(p)
		opens := k.opens(part)
		order := slices.Compare(opens, least)
		if best == nil || order <= 0 {
			p.loose = k.loose(p, part)
		}
		if best == nil || order < 0 || order == 0 && k.compare(p, best) < 0 {
			best, least = p, append(least[:0], opens...)
		}
	}
	return best
}

// compare orders piles that end the search and open as many domains: the tighter first, then the one that the policy
// prefers for the first member where it is one cell, then by name.
func (k *picking) compare(a, b *pile) int {
	if order := cmp.Compare(a.loose, b.loose); order != 0 {
		return order
	}
	if k.chart.cost == nil && len(a.cells) == 1 && len(b.cells) == 1 {
		if order := cmp.Compare(k.chart.score(b.cells[0]), k.chart.score(a.cells[0])); order != 0 {
			return order
		}
	}
	return cmp.Compare(a.domain, b.domain)
}

// loose is how well a pile fits what is needed of it, the less the better: its room, or what its part costs.
func (k *picking) loose(p *pile, part []int32) int64 {
	if k.chart.cost == nil {
		return p.takes
	}
	return k.chart.cost(part, &load{k.load.counts, k.need})
}

// part returns the cells of a pile that would take what is needed.
func (k *picking) part(p *pile) []int32 {
	if len(p.cells) == 1 || len(k.later) == 0 {
		return p.cells
	}
	rest := load{k.load.counts, k.need}
	order, used := k.chart.sequence(p.cells, k.later, &rest)
	return order[:used]
}

// fullest returns the first of the piles that take the most and open the fewest domains of the later levels; nil where
// none takes any.
func (k *picking) fullest() *pile {
	var best *pile
	least := make([]int, 0, len(k.later))
	for i := range k.piles {
		p := &k.piles[i]
		switch {
		case p.taken || p.barred:
			continue
		case p.takes == 0 || best != nil && p.takes < best.takes:
			return best
		}
		opens := k.opens(p.cells)
		if best == nil || slices.Compare(opens, least) < 0 {
			best, least = p, append(least[:0], opens...)
		}
		if !slices.ContainsFunc(least, func(n int) bool { return n > 0 }) {
			return best
		}
	}
	return best
}

// opens counts the domains of each later level that cells use and nothing before did, until it is called again.
func (k *picking) opens(cells []int32) []int {
	k.counts = k.counts[:0]
	for at, w := range k.later {
		used, count := k.used[at], 0
		for _, i := range cells {
			if !used[w.of[i]] {
				used[w.of[i]] = true
				count++
			}
		}
		k.counts = append(k.counts, count)
		if count > 0 {
			k.restore(at, w, cells)
		}
	}
	return k.counts
}

// restore takes marks of cells back that opens made: of those that no chosen cell and no member with a place made.
func (k *picking) restore(at int, w *division, cells []int32) {
	for _, i := range cells {
		k.used[at][w.of[i]] = k.kept[at][w.of[i]]
	}
}

// piles sorts cells by domain: those that take the most first, then those that cost the least, then by name.
func (t *chart) piles(cells []int32, v *division, later []*division, l *load) []pile {
	sorted := slices.Clone(cells)
	slices.SortStableFunc(sorted, func(a, b int32) int { return cmp.Compare(v.of[a], v.of[b]) })
	var piles []pile
	for at, i := range sorted {
		if at == 0 || v.of[i] != v.of[sorted[at-1]] {
			piles = append(piles, pile{domain: v.of[i], cells: sorted[at:at]})
		}
		p := &piles[len(piles)-1]
		p.cells = p.cells[:len(p.cells)+1]
		p.takes += t.takes(l, i)
	}
	for at := range piles {
		piles[at].parent = parent(piles[at].cells, later)
	}
	if t.cost != nil {
		for at := range piles {
			piles[at].loose = t.cost(piles[at].cells, &load{l.counts, piles[at].takes})
		}
	}
	slices.SortStableFunc(piles, func(a, b pile) int { return cmp.Or(cmp.Compare(b.takes, a.takes), cmp.Compare(a.loose, b.loose)) })
	return piles
}

// parent returns the domain of the next level in which cells lie, −1 where there is none.
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

// gather keeps equal piles of one wider domain together: the fewest piles that take what is needed are m; where m piles
// of one domain do, the others are barred, and else the domains of which m piles take the most come first.
func (k *picking) gather() {
	m, sum := 0, int64(0)
	for i := range k.piles {
		if p := &k.piles[i]; !p.taken && sum < k.need {
			sum += p.takes
			m++
		}
	}
	takes, count := map[int32]int64{}, map[int32]int{}
	for i := range k.piles {
		if p := &k.piles[i]; !p.taken && p.parent >= 0 && count[p.parent] < m {
			count[p.parent]++
			takes[p.parent] += p.takes
		}
	}
	best := int32(-1)
	for i := range k.piles {
		p := &k.piles[i]
		p.around = takes[p.parent]
		if !p.taken && p.around >= k.need && (best < 0 || k.tighter(p.parent, best, takes)) {
			best = p.parent
		}
	}
	for i := range k.piles {
		k.piles[i].barred = best >= 0 && k.piles[i].parent != best
	}
	slices.SortStableFunc(k.piles, func(a, b pile) int { return cmp.Or(cmp.Compare(b.takes, a.takes), cmp.Compare(b.around, a.around)) })
}

// tighter orders domains that take all: those in use first, then those that take less, then by name.
func (k *picking) tighter(a, b int32, takes map[int32]int64) bool {
	if used := k.used[0]; used[a] != used[b] {
		return used[a]
	}
	return cmp.Or(cmp.Compare(takes[a], takes[b]), cmp.Compare(a, b)) < 0
}
