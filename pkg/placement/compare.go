package placement

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxExact is in how many states nodes get exact scores for one pod, where a rough score orders them all first: as many as
// nodes on the scheduler's shortlist. More take more time, some 60 µs each with a thousand kinds of usual requests. With 8
// openb's lists filled to within 0.25 point, mostly above (docs/decisions/0042).
const maxExact = 100

// Entrant is one node of a comparison, with its state. A nil Node takes no part.
type Entrant struct {
	Node  *vgpu.Node
	State State
}

// Compare calls found with the score of each node that the request fits and that has a chance to be the best, by its place
// in the list. Nodes in up to maxExact states all have one. If there are more states, and the policy looks at what the
// usual requests fill, Compare scores the nodes with the best rough scores: those in the first maxExact states that the
// request fits and of which admits takes a node, and those that have no rough score. Among equally good states those with
// the first node by name come first. So the choice depends neither on the order of the list nor on what the cache has.
func (s *Scores) Compare(nodes []Entrant, r *vgpu.Request, admits func(i int) bool, found func(i int, score int64)) {
	k := s.ranking
	if k.sketch == nil {
		s.compareAll(nodes, r, found)
		return
	}
	g := &k.groups
	g.form(nodes, k)
	many := len(g.all) > k.bounds.exact
	if many {
		g.order(s, nodes, r, k.bounds.exact)
	}
	for left, next := k.bounds.exact, 0; left > 0 && next < len(g.all); next++ {
		if next == g.ordered {
			g.orderRest(nodes)
		}
		at := &g.all[next]
		if many && !g.any(at, admits) {
			continue
		}
		first := &nodes[at.first]
		score := s.Of(first.Node, first.State, r)
		if score < 0 {
			continue
		}
		if at.rough < roughMax {
			left--
		}
		for i := at.first; i >= 0; i = g.next[i] {
			found(int(i), score)
		}
	}
}

// compareAll is Compare for a policy without a sketch.
func (s *Scores) compareAll(nodes []Entrant, r *vgpu.Request, found func(i int, score int64)) {
	for i := range nodes {
		if n := nodes[i].Node; n != nil {
			if score := s.Of(n, nodes[i].State, r); score >= 0 {
				found(i, score)
			}
		}
	}
}

// groups are the nodes of a comparison by state.
type groups struct {
	all []group
	// next is the next node of the same state, −1 for none, by node.
	next []int32
	// of is the number of the group of a state, where seen has the number of this comparison.
	of, seen []int32
	turn     int32
	// ordered is how many groups have their place.
	ordered int
	roughs  []int32
}

// group is the nodes in one state: a list by next. least is the first by name.
type group struct{ first, last, least, rough int32 }

// form groups the nodes. Each node without a cached state is a group.
func (g *groups) form(nodes []Entrant, k *Ranking) {
	g.all, g.turn = g.all[:0], g.turn+1
	g.next = slices.Grow(g.next[:0], len(nodes))[:len(nodes)]
	if count := len(k.states); len(g.of) < count {
		g.of, g.seen = append(g.of, make([]int32, count-len(g.of))...), append(g.seen, make([]int32, count-len(g.seen))...)
	}
	for i := range nodes {
		n, at := nodes[i].Node, nodes[i].State
		g.next[i] = -1
		if n == nil {
			continue
		}
		if at.era == k.era {
			if g.seen[at.number] == g.turn {
				g.all[g.of[at.number]].add(g, int32(i), nodes)
				continue
			}
			g.seen[at.number], g.of[at.number] = g.turn, int32(len(g.all))
		}
		g.all = append(g.all, group{first: int32(i), last: int32(i), least: int32(i)})
	}
	g.ordered = len(g.all)
}

func (at *group) add(g *groups, i int32, nodes []Entrant) {
	g.next[at.last], at.last = i, i
	if nodes[i].Node.Name() < nodes[at.least].Node.Name() {
		at.least = i
	}
}

// any reports whether admits takes a node of the group.
func (g *groups) any(at *group, admits func(i int) bool) bool {
	for i := at.first; i >= 0; i = g.next[i] {
		if admits(int(i)) {
			return true
		}
	}
	return false
}

// order drops the groups that the request does not fit, and puts those with the best rough scores first, in order: at least
// count of them.
func (g *groups) order(s *Scores, nodes []Entrant, r *vgpu.Request, count int) {
	g.roughs = g.roughs[:0]
	fit, unknown := g.all[:0], 0
	for _, at := range g.all {
		if at.rough = s.rough(nodes[at.first].Node, nodes[at.first].State, r); at.rough >= 0 {
			fit, g.roughs = append(fit, at), append(g.roughs, at.rough)
		}
		if at.rough == roughMax {
			unknown++
		}
	}
	g.all, g.ordered = fit, len(fit)
	if count += unknown; len(fit) <= count {
		return
	}
	least := nth(g.roughs, count-1)
	g.ordered = 0
	for i := range g.all {
		if g.all[i].rough >= least {
			g.all[i], g.all[g.ordered] = g.all[g.ordered], g.all[i]
			g.ordered++
		}
	}
	sortGroups(g.all[:g.ordered], nodes)
}

// orderRest puts the other groups in order.
func (g *groups) orderRest(nodes []Entrant) {
	sortGroups(g.all[g.ordered:], nodes)
	g.ordered = len(g.all)
}

func sortGroups(list []group, nodes []Entrant) {
	slices.SortFunc(list, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.rough, a.rough), strings.Compare(nodes[a.least].Node.Name(), nodes[b.least].Node.Name()))
	})
}

// nth returns the number that would be at a place if the list were in falling order. It changes the order of the list.
func nth(list []int32, place int) int32 {
	for low, high := 0, len(list)-1; low < high; {
		pivot := list[(low+high)/2]
		i, j := low, high
		for i <= j {
			for ; list[i] > pivot; i++ {
			}
			for ; list[j] < pivot; j-- {
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case place <= j:
			high = j
		case place >= i:
			low = i
		default:
			return list[place]
		}
	}
	return list[place]
}
