package preemption

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// greedySteps is Config.MaxSteps of the search for one member on one node. A larger number finds cheaper victims where
// many small pods are on a device. The search runs on every node of a region once for each class.
const greedySteps = 256

// greedySearch gives the members of a gang the cheapest room one after the other.
type greedySearch struct {
	gang *gangSearch
	// q is the question after the evictions and placements so far. Its ledgers and what its candidates give back to
	// their hosts change; clear restores them.
	q        question
	who      Candidates
	searches []nodeSearch
	// order lists the classes, those with the largest requests first.
	order   []int
	victims *victimSet
	// alone caches the options of each class on each node before any eviction.
	alone []map[int32]*memberOption
	// placed lists the placed members by node.
	placed   map[int32][]placedMember
	changed  []int32
	admitted map[[2]int32]int
}

// memberOption is room for one member on a node.
type memberOption struct {
	node int32
	// pods are the additional victims, cost is their cost.
	pods  []int32
	cost  Cost
	place vgpu.Assignment
}

func newGreedySearch(f *gangSearch) *greedySearch {
	g := &greedySearch{gang: f, q: *f.q, who: *f.q.candidates, order: make([]int, len(f.classes)), alone: make([]map[int32]*memberOption, len(f.classes))}
	c := *f.q.c
	g.q.nodes = slices.Clone(f.q.nodes)
	g.who.Pods = slices.Clone(f.q.candidates.Pods)
	c.Nodes, g.q.c, g.q.candidates, g.q.stats = g.q.nodes, &c, &g.who, &Stats{}
	g.q.cfg.MaxSteps = min(greedySteps, g.q.cfg.MaxSteps)
	g.victims = newVictimSet(&g.q)
	g.searches = make([]nodeSearch, len(f.classes))
	for k, class := range f.classes {
		h := &g.searches[k]
		*h = nodeSearch{q: &g.q, r: &f.q.g.Members[class[len(class)-1]].Request, victims: g.victims}
		h.cover = cover{search: h, slot: make([]int32, len(g.who.Pods))}
		h.sets.search = h
		g.order[k], g.alone[k] = k, map[int32]*memberOption{}
	}
	slices.SortStableFunc(g.order, func(a, b int) int { return cmp.Compare(g.searches[b].r.PeakSlots(), g.searches[a].r.PeakSlots()) })
	return g
}

// rankRegions finds victims in each region by the greedy search, and orders the regions by their cost.
func (f *gangSearch) rankRegions(regions []*region) {
	g := newGreedySearch(f)
	f.ranked = true
	for _, r := range regions {
		if g.placeAll(r) {
			r.greedy, r.cost = slices.Clone(g.victims.trail), g.victims.cost
		}
		g.clear()
	}
	slices.SortStableFunc(regions, func(a, b *region) int {
		if (a.greedy == nil) != (b.greedy == nil) {
			if a.greedy == nil {
				return 1
			}
			return -1
		}
		return a.cost.Compare(b.cost)
	})
}

// placeAll finds room for all members in a region, and reports whether there is enough.
func (g *greedySearch) placeAll(r *region) bool {
	g.placed, g.admitted = map[int32][]placedMember{}, map[[2]int32]int{}
	for _, k := range g.order {
		if !g.placeClass(r, k) {
			return false
		}
	}
	return true
}

// placeClass finds room for the members of one class.
func (g *greedySearch) placeClass(r *region, k int) bool {
	now := make(map[int32]*memberOption, len(r.nodes))
	list := make([]int32, 0, len(r.nodes))
	for _, i := range r.nodes {
		if now[i] = g.option(k, i); now[i] != nil {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int32) int { return now[a].cost.Compare(now[b].cost) })
	for _, member := range g.gang.classes[k] {
		best := g.cheapestOption(k, list[:min(len(list), comparedNodes*(len(g.gang.classes[k])+1))], now)
		if best == nil {
			return false
		}
		for _, i := range g.take(best, member) {
			if now[i] != nil && g.gang.regionOf[i] == r.number {
				now[i] = g.searchOption(k, i)
			}
		}
	}
	return true
}

// comparedNodes bounds, for each member, the number of nodes in the second comparison: those with the cheapest room at
// first. A larger number finds cheaper nodes where the victims for one member also make room for others, and takes
// longer.
const comparedNodes = 8

// cheapestOption returns the option with the least total cost, the first of the list among equals.
func (g *greedySearch) cheapestOption(k int, list []int32, now map[int32]*memberOption) (best *memberOption) {
	kind := g.gang.q.g.Members[g.gang.classes[k][0]].Kind
	var least Cost
	for _, i := range list {
		if g.q.c.Admits != nil && g.q.c.Admits(kind, int(i)) <= g.admitted[[2]int32{int32(kind), i}] {
			continue
		}
		cost, may := g.priceOf(now[i])
		if !may && now[i] != nil { // the terms forbid these victims beside the ones so far, but maybe not others
			now[i] = g.searchOption(k, i)
			cost, may = g.priceOf(now[i])
		}
		if may && (best == nil || cost.Compare(least) < 0) {
			best, least = now[i], cost
		}
	}
	if best == nil {
		return nil
	}
	if again := g.searchOption(k, best.node); again != nil {
		return again // the victims so far may make other options on the node cheaper
	}
	return best
}

// priceOf returns the total cost with an option, and whether the terms allow its victims.
func (g *greedySearch) priceOf(s *memberOption) (cost Cost, may bool) {
	if s == nil {
		return cost, false
	}
	m := g.victims.mark()
	may = g.victims.addAll(s.pods)
	cost = g.victims.cost
	g.victims.undo(m)
	return cost, may
}

// take uses an option for a member, and returns the nodes that changed.
func (g *greedySearch) take(s *memberOption, member int) []int32 {
	m := g.victims.mark()
	g.victims.addAll(s.pods)
	touched := []int32{s.node}
	for _, p := range g.victims.trail[m.trail:] {
		if i := g.q.nodeOf[p]; i >= 0 {
			touched = append(touched, i)
		}
	}
	g.placed[s.node] = append(g.placed[s.node], placedMember{s.place, &g.gang.q.g.Members[member]})
	g.admitted[[2]int32{int32(g.gang.q.g.Members[member].Kind), s.node}]++
	slices.Sort(touched)
	touched = slices.Compact(touched)
	for _, i := range touched {
		g.rebuild(i)
	}
	g.changed = append(g.changed, touched...)
	for _, p := range g.victims.trail[m.trail:] {
		g.who.Pods[p].Host = vgpu.Room{} // the ledger has it back already
	}
	return touched
}

// placedMember is a member with its place.
type placedMember struct {
	place vgpu.Assignment
	*gang.Member
}

// rebuild computes the ledger of a node from the victims and its new members.
func (g *greedySearch) rebuild(i int32) {
	n := g.gang.q.without(g.gang.q.nodes[i], int(i), func(p int32) bool { return g.victims.evicted[p] })
	for _, l := range g.placed[i] {
		l.place.UID, l.place.Pod = l.Request.UID, l.Request.Pod
		if len(l.place.Containers) > 0 {
			if err := n.Add(l.place); err != nil {
				panic(err) // placement has checked that the assignment fits
			}
		}
		n.SetRoom(n.Room().Minus(l.Request.Host))
	}
	g.q.nodes[i] = n
}

// option returns the cheapest room for one member of a class on a node, nil where there is none.
func (g *greedySearch) option(k int, i int32) *memberOption {
	if g.q.nodes[i] != g.gang.q.nodes[i] {
		return g.searchOption(k, i)
	}
	s, known := g.alone[k][i]
	if !known {
		s = g.searchOption(k, i)
		g.alone[k][i] = s
	}
	return s
}

func (g *greedySearch) searchOption(k int, i int32) *memberOption {
	h := &g.searches[k]
	h.best = nil
	if g.gang.useful[i] {
		h.searchNode(int(i))
	}
	if h.best == nil {
		return nil
	}
	s := &memberOption{node: i, cost: h.best.cost, place: h.best.places[0]}
	for _, p := range g.gang.pods(h.best.units) {
		if !g.victims.evicted[p] {
			s.pods = append(s.pods, p)
		}
	}
	return s
}

// clear restores the question.
func (g *greedySearch) clear() {
	for _, p := range g.victims.trail {
		g.who.Pods[p].Host = g.gang.q.candidates.Pods[p].Host
	}
	g.victims.undo(mark{})
	for _, i := range g.changed {
		g.q.nodes[i] = g.gang.q.nodes[i]
	}
	g.changed = g.changed[:0]
}
