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
	// wider is what the domains around it take, by later level; −1 where it lies in several.
	wider  []int32
	around int64
	taken  bool
}

// narrow chooses the fewest domains of a level that take the load, those first that members with a place use, and
// returns their cells in the order of choice and the others.
func (t *chart) narrow(cells []int32, v *division, later []*division, l *load) (chosen, left []int32) {
	piles := t.piles(cells, v, later, l)
	need := l.sum
	used := make([]map[int32]bool, len(later))
	for i, w := range later {
		used[i] = map[int32]bool{}
		for _, d := range w.opened {
			used[i][d] = true
		}
	}
	pick := func(p *pile) {
		p.taken = true
		need -= p.takes
		chosen = append(chosen, p.cells...)
		for i, d := range p.wider {
			used[i][d] = true
		}
	}
	for i := range piles {
		if slices.Contains(v.opened, piles[i].domain) {
			pick(&piles[i])
		}
	}
	for need > 0 {
		p := next(piles, need, used)
		if p == nil {
			break
		}
		pick(p)
	}
	for i := range piles {
		if !piles[i].taken {
			left = append(left, piles[i].cells...)
		}
	}
	return chosen, left
}

// piles sorts cells by domain, those that take the most first, then those in the wider domains that take the most, then
// by name.
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
	for _, w := range later {
		if w.key == nodes && v.key != NVLink {
			break // nodes are wider than islands only
		}
		t.widen(piles, w)
	}
	slices.SortStableFunc(piles, func(a, b pile) int { return cmp.Or(cmp.Compare(b.takes, a.takes), cmp.Compare(b.around, a.around)) })
	return piles
}

// widen notes in which domain of a later level the piles lie, and what it takes.
func (t *chart) widen(piles []pile, w *division) {
	sums := map[int32]int64{}
	for at := range piles {
		p := &piles[at]
		d := w.of[p.cells[0]]
		if slices.ContainsFunc(p.cells, func(i int32) bool { return w.of[i] != d }) {
			d = -1
		}
		p.wider = append(p.wider, d)
		sums[d] += p.takes
	}
	for at := range piles {
		if p := &piles[at]; len(p.wider) == 1 {
			p.around = sums[p.wider[0]]
		}
	}
}

// next returns the pile to pick: the tightest that takes all that is needed, else the first of those that take the most.
// Piles that open fewer domains of later levels come first among those that end the search, and among equals.
func next(piles []pile, need int64, used []map[int32]bool) *pile {
	var best *pile
	opens := 0
	for i := range piles {
		p := &piles[i]
		switch {
		case p.taken:
			continue
		case p.takes == 0:
			return best
		case best != nil && p.takes < need && (best.takes >= need || p.takes < best.takes):
			return best
		}
		n := opened(p, used)
		if best == nil || n < opens || n == opens && p.takes < best.takes {
			best, opens = p, n
		}
	}
	return best
}

// opened counts the domains of later levels that a pile opens: the first level weighs the most.
func opened(p *pile, used []map[int32]bool) int {
	n := 0
	for i, d := range p.wider {
		n *= 2
		if d < 0 || !used[i][d] {
			n++
		}
	}
	return n
}
