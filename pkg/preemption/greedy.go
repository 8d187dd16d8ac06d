package preemption

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// guessSteps is Config.MaxSteps of the search for one member on one node. More finds cheaper pods where many small ones are on a
// device; every node of a region is asked once for each class.
const guessSteps = 256

// guess puts the members of a gang one by one where that costs the least.
type guess struct {
	f *field
	// q is the question as it is once those that are picked are gone and members have their places: its ledgers and what its
	// candidates give back of their hosts change, and return.
	q     question
	who   Candidates
	hunts []hunt
	// order lists the classes, those that ask for the most slots first.
	order  []int
	picked *choice
	// alone are the finds of each class on each node before anybody is picked.
	alone []map[int32]*spot
	// on are the members on each node by now.
	on       map[int32][]lodger
	changed  []int32
	admitted map[[2]int32]int
}

// spot is room for one member on a node.
type spot struct {
	node int32
	// pods have to go for it, at this cost beside those that are picked already.
	pods  []int32
	cost  Cost
	place vgpu.Assignment
}

func newGuess(f *field) *guess {
	g := &guess{f: f, q: *f.q, who: *f.q.who, order: make([]int, len(f.classes)), alone: make([]map[int32]*spot, len(f.classes))}
	c := *f.q.c
	g.q.nodes = slices.Clone(f.q.nodes)
	g.who.Pods = slices.Clone(f.q.who.Pods)
	c.Nodes, g.q.c, g.q.who, g.q.stats = g.q.nodes, &c, &g.who, &Stats{}
	g.q.cfg.MaxSteps = min(guessSteps, g.q.cfg.MaxSteps)
	g.picked = newChoice(&g.q)
	g.hunts = make([]hunt, len(f.classes))
	for k, class := range f.classes {
		h := &g.hunts[k]
		*h = hunt{q: &g.q, r: &f.q.g.Members[class[len(class)-1]].Request, picked: g.picked}
		h.cover = cover{h: h, slot: make([]int32, len(g.who.Pods))}
		h.sets.h = h
		g.order[k], g.alone[k] = k, map[int32]*spot{}
	}
	slices.SortStableFunc(g.order, func(a, b int) int { return cmp.Compare(g.hunts[b].r.PeakSlots(), g.hunts[a].r.PeakSlots()) })
	return g
}

// rank guesses who goes in each region, and orders the regions by what that costs.
func (f *field) rank(regions []*region) {
	g := newGuess(f)
	f.ranked = true
	for _, r := range regions {
		if g.run(r) {
			r.guess, r.cost = slices.Clone(g.picked.trail), g.picked.cost
		}
		g.clear()
	}
	slices.SortStableFunc(regions, func(a, b *region) int {
		return cmp.Or(after(a.guess == nil, b.guess == nil), a.cost.Compare(b.cost))
	})
}

// run picks room for all members in a region, and reports whether there is.
func (g *guess) run(r *region) bool {
	g.on, g.admitted = map[int32][]lodger{}, map[[2]int32]int{}
	for _, k := range g.order {
		if !g.class(r, k) {
			return false
		}
	}
	return true
}

// class picks room for the members of one class.
func (g *guess) class(r *region, k int) bool {
	now := make(map[int32]*spot, len(r.nodes))
	list := make([]int32, 0, len(r.nodes))
	for _, i := range r.nodes {
		if now[i] = g.spot(k, i); now[i] != nil {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int32) int { return now[a].cost.Compare(now[b].cost) })
	for _, member := range g.f.classes[k] {
		best := g.pick(k, list[:min(len(list), nearby*(len(g.f.classes[k])+1))], now)
		if best == nil {
			return false
		}
		for _, i := range g.take(best, member) {
			if now[i] != nil && g.f.regionOf[i] == r.number {
				now[i] = g.ask(k, i)
			}
		}
	}
	return true
}

// nearby is how many nodes, for each member, are compared for every one: those with the cheapest room at first. More finds
// cheaper ones where those who go for one member make room for others.
const nearby = 8

// pick returns the spot that costs the least in all, the first of the list among equals.
func (g *guess) pick(k int, list []int32, now map[int32]*spot) (best *spot) {
	kind := g.f.q.g.Members[g.f.classes[k][0]].Kind
	var least Cost
	for _, i := range list {
		if g.q.c.Admits != nil && g.q.c.Admits(kind, int(i)) <= g.admitted[[2]int32{int32(kind), i}] {
			continue
		}
		cost, may := g.price(now[i])
		if !may && now[i] != nil { // who would go may not go beside those that are picked: others may
			now[i] = g.ask(k, i)
			cost, may = g.price(now[i])
		}
		if may && (best == nil || cost.Compare(least) < 0) {
			best, least = now[i], cost
		}
	}
	if best == nil {
		return nil
	}
	if again := g.ask(k, best.node); again != nil {
		return again // those who are picked make others cheaper
	}
	return best
}

// price returns what it costs in all to pick a spot, and whether that may be.
func (g *guess) price(s *spot) (cost Cost, may bool) {
	if s == nil {
		return cost, false
	}
	m := g.picked.mark()
	may = g.picked.all(s.pods)
	cost = g.picked.cost
	g.picked.undo(m)
	return cost, may
}

// take picks a spot for a member, and returns the nodes that are not what they were.
func (g *guess) take(s *spot, member int) []int32 {
	m := g.picked.mark()
	g.picked.all(s.pods)
	touched := []int32{s.node}
	for _, p := range g.picked.trail[m.trail:] {
		if i := g.q.nodeOf[p]; i >= 0 {
			touched = append(touched, i)
		}
	}
	g.on[s.node] = append(g.on[s.node], lodger{s.place, &g.f.q.g.Members[member]})
	g.admitted[[2]int32{int32(g.f.q.g.Members[member].Kind), s.node}]++
	slices.Sort(touched)
	touched = slices.Compact(touched)
	for _, i := range touched {
		g.rebuild(i)
	}
	g.changed = append(g.changed, touched...)
	for _, p := range g.picked.trail[m.trail:] {
		g.who.Pods[p].Host = vgpu.Room{} // the ledger has given it back
	}
	return touched
}

// lodger is a member that has a spot.
type lodger struct {
	place vgpu.Assignment
	*gang.Member
}

// rebuild makes the ledger of a node from those that are picked and the members on it.
func (g *guess) rebuild(i int32) {
	n := g.f.q.without(g.f.q.nodes[i], int(i), func(p int32) bool { return g.picked.gone[p] })
	for _, l := range g.on[i] {
		l.place.UID, l.place.Pod = l.Request.UID, l.Request.Pod
		if len(l.place.Containers) > 0 {
			if err := n.Add(l.place); err != nil {
				panic(err) // what placement chose fits
			}
		}
		n.SetRoom(n.Room().Minus(l.Request.Host))
	}
	g.q.nodes[i] = n
}

// spot returns the cheapest room for one member of a class on a node, nil where there is none.
func (g *guess) spot(k int, i int32) *spot {
	if g.q.nodes[i] != g.f.q.nodes[i] {
		return g.ask(k, i)
	}
	s, known := g.alone[k][i]
	if !known {
		s = g.ask(k, i)
		g.alone[k][i] = s
	}
	return s
}

func (g *guess) ask(k int, i int32) *spot {
	h := &g.hunts[k]
	h.best = nil
	if g.f.useful[i] {
		h.visit(int(i))
	}
	if h.best == nil {
		return nil
	}
	s := &spot{node: i, cost: h.best.cost, place: h.best.places[0]}
	for _, p := range g.f.pods(h.best.units) {
		if !g.picked.gone[p] {
			s.pods = append(s.pods, p)
		}
	}
	return s
}

// clear returns to the question as it was.
func (g *guess) clear() {
	for _, p := range g.picked.trail {
		g.who.Pods[p].Host = g.f.q.who.Pods[p].Host
	}
	g.picked.undo(mark{})
	for _, i := range g.changed {
		g.q.nodes[i] = g.f.q.nodes[i]
	}
	g.changed = g.changed[:0]
}
