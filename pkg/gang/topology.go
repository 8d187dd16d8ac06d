package gang

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// chart is a ground cut into cells, with what each takes at most.
type chart struct {
	ground *ground
	// cells by node; those beyond the first whole ones are cut from them.
	cells []cell
	whole int
	// caps by class and cell; slots free by cell, for crews of several classes.
	caps  [][]int32
	slots []int64
	// cost, where it is not nil, orders what is equal otherwise: the least first. It takes the place of tightness.
	cost func(cells []int32, l *load) int64
	// scores are the policy's of the first member of the crew, by cell, as far as they were asked for.
	scores map[int32]int64
	// byKey are the divisions by level, made when they are asked for.
	byKey map[string]*division
}

func newChart(f *ground, islands bool) *chart {
	cells := cellsOf(f.nodes, islands)
	return chartOf(f, cells, len(cells))
}

// chartOf measures what each cell takes.
func chartOf(f *ground, cells []cell, whole int) *chart {
	t := &chart{ground: f, cells: cells, whole: whole, byKey: map[string]*division{}, scores: map[int32]int64{}}
	for k := range f.crew.classes {
		t.caps = append(t.caps, t.measure(&f.crew.classes[k]))
	}
	if len(f.crew.classes) > 1 {
		t.slots = t.room()
	}
	return t
}

// division is the cells by the domains of one level, which are numbered in the order of their names. Cells on nodes
// without the label are domains of their own: their numbers are named or more.
type division struct {
	key   string
	of    []int32
	named int32
	name  func(domain int32) string
	// opened are the domains that members with a place use.
	opened []int32
}

// nodes is the key of the division of cells by node.
const nodes = ""

// division returns the cells by level.
func (t *chart) division(key string) *division {
	if v := t.byKey[key]; v != nil {
		return v
	}
	var v *division
	switch key {
	case nodes:
		v = t.divide(func(i int) int32 { return t.cells[i].node })
		v.named = int32(len(t.ground.nodes))
		v.name = func(d int32) string { return t.ground.nodes[d].Name() }
	case NVLink:
		v = t.divide(func(i int) int32 { return t.cells[i].whole })
		v.named = int32(t.whole)
		v.name = t.island
	default:
		v = t.label(t.ground.c.level(key))
	}
	v.key = key
	v.open(t)
	t.byKey[key] = v
	return v
}

func (t *chart) divide(of func(cell int) int32) *division {
	v := &division{of: make([]int32, len(t.cells))}
	for i := range v.of {
		v.of[i] = of(i)
	}
	return v
}

// label divides the cells by a label of their nodes.
func (t *chart) label(l *Level) *division {
	order := make([]int32, len(l.Names))
	for i := range order {
		order[i] = int32(i)
	}
	byName := func(a, b int32) int { return cmp.Or(strings.Compare(l.Names[a], l.Names[b]), cmp.Compare(a, b)) }
	if !slices.IsSortedFunc(order, byName) {
		slices.SortFunc(order, byName)
	}
	rank := make([]int32, len(order))
	for at, d := range order {
		rank[d] = int32(at)
	}
	named := int32(len(order))
	v := t.divide(func(i int) int32 {
		node := t.cells[i].node
		if d := l.Domain[node]; d >= 0 {
			return rank[d]
		}
		return named + node
	})
	v.named = named
	v.name = func(d int32) string {
		if d < named {
			return l.Names[order[d]]
		}
		return t.ground.nodes[d-named].Name()
	}
	return v
}

// island names the devices of a cell for people: "n1/g0,g1".
func (t *chart) island(i int32) string {
	k := &t.cells[i]
	n := t.ground.nodes[k.node]
	var names []string
	for d := range n.Devices() {
		if k.has(d) {
			names = append(names, n.Devices()[d].Name())
		}
	}
	return n.Name() + "/" + strings.Join(names, ",")
}

// open notes which domains the members with a place use. Those on nodes that are not there use none.
func (v *division) open(t *chart) {
	for i := range t.ground.crew.g.Placed {
		a := &t.ground.crew.g.Placed[i]
		v.opened = append(v.opened, t.under(a, v)...)
	}
	slices.Sort(v.opened)
	v.opened = slices.Compact(v.opened)
}

// under returns the domains that an assignment uses: those of its devices for NVLink, else those of its node.
func (t *chart) under(a *vgpu.Assignment, v *division) []int32 {
	node, there := t.ground.find(a.Node)
	if !there {
		return nil
	}
	at, _ := slices.BinarySearchFunc(t.cells[:t.whole], int32(node), func(k cell, node int32) int { return cmp.Compare(k.node, node) })
	if v.key != NVLink {
		return v.of[at : at+1]
	}
	var domains []int32
	for ; at < t.whole && t.cells[at].node == int32(node); at++ {
		for c := range a.Containers {
			for _, id := range a.Containers[c].Devices {
				if i := t.ground.nodes[node].Index(id); i >= 0 && t.cells[at].has(i) {
					domains = append(domains, v.of[at])
				}
			}
		}
	}
	return domains
}

// whole reports whether one named domain has all the members with a place, and which: any (−1) where none has one.
func (v *division) whole() (domain int32, one bool) {
	switch {
	case len(v.opened) == 0:
		return -1, true
	case len(v.opened) > 1 || v.opened[0] >= v.named:
		return -1, false
	}
	return v.opened[0], true
}

// maxScores bounds the cells of a chart that are compared by the policy where all else is equal; further ones are equal
// then. Larger compares more, at some two microseconds each.
const maxScores = 256

// score returns the policy's score of a cell for the first member of the crew, 0 beyond maxScores.
func (t *chart) score(i int32) int64 {
	s, known := t.scores[i]
	if !known && len(t.scores) < maxScores {
		k := &t.cells[i]
		s = placement.Score(k.restrict(t.ground.nodes[k.node]), t.ground.crew.classes[0].request, t.ground.policy)
		t.scores[i] = s
	}
	return s
}
