package why

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// podsEnd finds the first time at which enough pods have ended, as they declare, and the pods whose ends matter. Other pods may
// take the room meanwhile.
func (q *question) podsEnd() (*Change, error) {
	all := q.ending()
	needed, found, err := q.firstEnds(all)
	if err != nil || found == nil {
		return nil, err
	}
	c, err := q.spare(PodsEnd, all[:needed], found)
	if err == nil {
		c.At = all[needed-1].Until
	}
	return c, err
}

// firstEnds finds how many of the pods that end first have to end, and the places then; nil where all of them are not enough. Fewer
// pods leave less room, so the least number is found by halves.
func (q *question) firstEnds(all []Leaving) (needed int, found []vgpu.Assignment, err error) {
	if q.gang == nil {
		needed = q.firstEndsOfOne(all)
		if needed > len(all) {
			return 0, nil, nil
		}
		found, err = q.without(leaversOf(false, all[:needed]))
		return needed, found, err
	}
	later, cuts := q.nodesLater(all), endsTogether(all)
	for least, most := 0, len(cuts)-1; least <= most; {
		at := least + (most-least)/2
		places, err := q.tryWith(func(i int, _ *vgpu.Node) *vgpu.Node { return later(i, cuts[at]) })
		if err != nil {
			return 0, nil, err
		}
		if places == nil {
			least = at + 1
			continue
		}
		found, needed, most = places, cuts[at], at-1
	}
	return needed, found, nil
}

// endsTogether returns, for each time at which pods end, how many have ended then.
func endsTogether(all []Leaving) (cuts []int) {
	for i := range all {
		if i+1 == len(all) || all[i].Until != all[i+1].Until {
			cuts = append(cuts, i+1)
		}
	}
	return cuts
}

// nodesLater returns a function that returns q.nodes[i] after the first k ends. It makes each state of a node once.
func (q *question) nodesLater(all []Leaving) func(i, k int) *vgpu.Node {
	order, on := ends(all)
	at, states := make([][]int, len(q.nodes)), make([][]*vgpu.Node, len(q.nodes))
	for i, n := range q.nodes {
		at[i] = on[n.Name()]
		states[i] = make([]*vgpu.Node, len(at[i])+1)
		states[i][0] = n
	}
	return func(i, k int) *vgpu.Node {
		gone, _ := slices.BinarySearch(at[i], k)
		if states[i][gone] == nil {
			states[i][gone] = q.nodes[i].Without(order.before(k))
		}
		return states[i][gone]
	}
}

// order is the order in which pods end.
type order map[vgpu.UID]int

// ends returns the order of ends, and the places in it of the pods on each node.
func ends(all []Leaving) (order, map[string][]int) {
	o, on := make(order, len(all)), map[string][]int{}
	for i := range all {
		o[all[i].UID], on[all[i].Node] = i, append(on[all[i].Node], i)
	}
	return o, on
}

// before reports whether an assignment ends as one of the first k.
func (o order) before(k int) func(h *vgpu.Hold, held bool) bool {
	return func(h *vgpu.Hold, held bool) bool {
		at, ends := o[h.UID]
		return !held && ends && at < k
	}
}

// firstEndsOfOne is firstEnds for a single pod, which only needs ends on one node: it asks each node whether it beats the best so far.
// More than all pods stands for no node.
func (q *question) firstEndsOfOne(all []Leaving) int {
	order, on := ends(all)
	best := len(all) + 1
	for _, n := range q.nodes {
		after := func(k int) bool { return q.fits(n.Without(order.before(k)), &q.requests[0]) }
		ends := on[n.Name()]
		for len(ends) > 0 && ends[len(ends)-1] >= best-1 { // these do not beat the best
			ends = ends[:len(ends)-1]
		}
		if len(ends) == 0 || !after(ends[len(ends)-1]+1) {
			continue
		}
		at, _ := slices.BinarySearchFunc(ends, true, func(end int, _ bool) int {
			if after(end + 1) {
				return 0
			}
			return -1
		})
		best = ends[at] + 1
	}
	return best
}

// ending returns the pods with a declared end, the first to end first.
func (q *question) ending() []Leaving {
	var all []Leaving
	for i := range q.s.Nodes {
		n := &q.s.Nodes[i]
		for k := range n.Pods {
			p := &n.Pods[k]
			if p.EndsBy.IsZero() || n.Problem != "" || q.own(p) {
				continue
			}
			all = append(all, Leaving{Name: p.Name, Node: n.Name, Priority: p.Priority, Until: p.EndsBy.Unix()})
		}
	}
	slices.SortFunc(all, byEnd)
	return all
}

// byEnd orders pods by their ends.
func byEnd(a, b Leaving) int { return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.UID, b.UID)) }
