package preemption

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// gangSearch looks for the cheapest pods whose eviction makes room for a gang. gang.Place decides what fits.
type gangSearch struct {
	q *question
	// classes are the members that must get a place, see gang.Group.Classes. The field exact says that gang.Place finds
	// places for them whenever there are any. Then a further eviction never takes a place away.
	classes [][]int
	exact   bool
	// open nodes take a member without any eviction, useful ones after all allowed evictions.
	open, useful []bool
	// placedNodes are the nodes of the members that have a place.
	placedNodes []int32
	// levels are the levels of the wishes.
	levels []gang.Level
	// regionOf is the number of the region of each node, −1 for none.
	regionOf []int32
	victims  *victimSet
	evicted  []bool
	// setsLeft is how many more sets the search may try. listsLeft is how many more it may list.
	setsLeft, listsLeft int
	// reprievesLeft is how many reprieves of a region the search may try.
	reprievesLeft int
	// ranked says that the greedy search has run.
	ranked bool
	// best is the best answer so far, in bestRegion.
	best       *answer
	bestRegion *region
}

// group answers for a gang. The gang goes to the domain of the required levels where the cheapest units make room. If a
// domain has no more than MaxSteps sets of units, the search compares all of them. In a larger domain a greedy search
// gives each member the cheapest room in turn; then it reprieves every pod that can stay.
func (q *question) group() *answer {
	f := newGangSearch(q)
	if places := f.placesAfter(nil, nil); places != nil {
		return f.complete(&answer{units: []Unit{}}, places)
	}
	regions := f.regions()
	q.stats.Places = len(regions)
	if f.exact {
		regions = slices.DeleteFunc(regions, func(r *region) bool { return f.placesAfter(r, r.pods) == nil })
	}
	if len(regions) > 1 {
		f.rankRegions(regions)
	}
	for _, r := range regions {
		f.searchRegion(r)
	}
	if f.best == nil {
		return nil
	}
	gone := f.pods(f.best.units)
	places := f.placesAfter(nil, gone)
	if places == nil {
		places = f.placesAfter(f.bestRegion, gone) // gang.Place tries only MaxDomains domains
	}
	if places == nil {
		// gang.Place is greedy: with all units evicted it may miss what it found with some of them. A plan evicts no
		// pod for that.
		q.stats.Cut = true
		return nil
	}
	return f.complete(f.best, places)
}

// listsPerStep is how many sets the search may list for each set that it may try. Listing a set takes a microsecond,
// trying one some fifty. A larger number compares all sets in more domains, and lists for longer.
const listsPerStep = 16

func newGangSearch(q *question) *gangSearch {
	f := &gangSearch{q: q, victims: newVictimSet(q), evicted: make([]bool, len(q.candidates.Pods)), setsLeft: q.cfg.MaxSteps, listsLeft: listsPerStep * q.cfg.MaxSteps}
	f.reprievesLeft = maxSpared / len(q.g.Members)
	classes, alike := q.g.Classes()
	f.classes = classes
	f.exact = alike && len(q.g.Members[0].Request.Containers) <= 1 && q.g.Members[0].Request.MaxSlowdown == 0
	f.removeOwnHolds()
	for i := range q.c.Levels {
		if l := &q.c.Levels[i]; slices.Contains(q.g.Wishes.Required, l.Key) || slices.Contains(q.g.Wishes.Preferred, l.Key) {
			f.levels = append(f.levels, *l)
		}
	}
	for i := range q.g.Placed {
		if at := slices.IndexFunc(q.nodes, func(n *vgpu.Node) bool { return n.Name() == q.g.Placed[i].Node }); at >= 0 {
			f.placedNodes = append(f.placedNodes, int32(at))
		}
	}
	slices.Sort(f.placedNodes)
	f.placedNodes = slices.Compact(f.placedNodes)
	f.open, f.useful = make([]bool, len(q.nodes)), make([]bool, len(q.nodes))
	for i, n := range q.nodes {
		f.open[i] = f.takesMember(i, n)
		f.useful[i] = f.open[i] || slices.ContainsFunc(q.podsOn(i), func(p int32) bool { return q.evictable[p] }) &&
			f.takesMember(i, q.without(n, i, func(p int32) bool { return q.evictable[p] }))
	}
	return f
}

// removeOwnHolds removes the holds of the members from the ledgers. If a pod has a promise, exact becomes false.
func (f *gangSearch) removeOwnHolds() {
	q := f.q
	own := q.own()
	q.nodes = slices.Clone(q.nodes)
	for i, n := range q.nodes {
		held := false
		if n.Held() {
			n.EachHold(func(h *vgpu.Hold) { held = held || own[h.UID] })
		}
		if held {
			q.nodes[i] = n.Without(func(h *vgpu.Hold, held bool) bool { return held && own[h.UID] })
		}
		n.Each(func(a *vgpu.Assignment) { f.exact = f.exact && a.MaxSlowdown == 0 })
	}
}

// takesMember reports whether a node takes a member of any class.
func (f *gangSearch) takesMember(i int, n *vgpu.Node) bool {
	for _, class := range f.classes {
		m := &f.q.g.Members[class[0]]
		if f.q.c.Admits != nil && f.q.c.Admits(m.Kind, i) < 1 {
			continue
		}
		lacks := lacksOf(n.Room(), m.Request.Host)
		if taken, of := n.Taken(); lacks.met() && (taken < of || len(m.Request.Containers) == 0) && f.q.cfg.Policy.Fit(n, &m.Request) == nil {
			return true
		}
	}
	return false
}

// region is one domain of each required level, with its nodes that may take members, in the order of their names.
type region struct {
	number int32
	nodes  []int32
	// pods are the possible victims on these nodes.
	pods []int32
	// greedy is the victims that the greedy search found, with their cost; nil where it found none.
	greedy []int32
	cost   Cost
}

// regions returns the domains in which the gang may find room, by their first nodes.
func (f *gangSearch) regions() []*region {
	q := f.q
	var list []*region
	f.regionOf = make([]int32, len(q.nodes))
	byKey := map[string]*region{}
	for i := range q.nodes {
		f.regionOf[i] = -1
		key, named := f.key(i)
		if !named || !f.useful[i] && !slices.Contains(f.placedNodes, int32(i)) {
			continue
		}
		r := byKey[key]
		if r == nil {
			r = &region{number: int32(len(list))}
			byKey[key], list = r, append(list, r)
		}
		f.regionOf[i] = r.number
		r.nodes = append(r.nodes, int32(i))
		for _, p := range q.podsOn(i) {
			if q.evictable[p] && f.useful[i] {
				r.pods = append(r.pods, p)
			}
		}
	}
	return slices.DeleteFunc(list, func(r *region) bool {
		return slices.ContainsFunc(f.placedNodes, func(i int32) bool { return f.regionOf[i] != r.number })
	})
}

// key names the domain of a node, and reports whether the node has all labels.
func (f *gangSearch) key(i int) (key string, named bool) {
	for _, l := range f.levels {
		if !slices.Contains(f.q.g.Wishes.Required, l.Key) {
			continue
		}
		d := l.Domain[i]
		if d < 0 {
			return "", false
		}
		key += string([]byte{byte(d), byte(d >> 8), byte(d >> 16), byte(d >> 24)})
	}
	if slices.Contains(f.q.g.Wishes.Required, gang.NVLink) {
		key = f.q.nodes[i].Name()
	}
	return key, true
}

// searchRegion looks for the cheapest pods in one region.
func (f *gangSearch) searchRegion(r *region) {
	if f.compareSets(r) {
		return
	}
	f.q.stats.Cut = true
	if f.best != nil && (r.greedy == nil || r.cost.Compare(f.best.cost) >= 0) {
		return
	}
	if !f.ranked {
		f.rankRegions([]*region{r})
	}
	pods := r.greedy
	if pods == nil || f.placesAfter(r, pods) == nil {
		pods = f.cheapest(r)
	}
	if pods != nil {
		f.reprieve(r, pods)
	}
}

// placesAfter returns places for the gang in a region, in any region for nil, after the eviction of some pods. nil
// stands for no places. Nodes that take no member do not count.
func (f *gangSearch) placesAfter(r *region, gone []int32) []vgpu.Assignment {
	q := f.q
	q.stats.Steps++
	within := func(i int32) bool { return r == nil || f.regionOf[i] == r.number }
	touched := slices.Clone(f.placedNodes)
	for _, p := range gone {
		f.evicted[p] = true
		if i := q.nodeOf[p]; i >= 0 && f.useful[i] && within(i) {
			touched = append(touched, i)
		}
	}
	if r == nil {
		for i, open := range f.open {
			if open {
				touched = append(touched, int32(i))
			}
		}
	} else {
		for _, i := range r.nodes {
			if f.open[i] {
				touched = append(touched, i)
			}
		}
	}
	slices.Sort(touched)
	plan, err := gang.Place(f.cluster(slices.Compact(touched)), q.g, f.placeConfig())
	if err != nil {
		panic(err) // Victims has validated the input
	}
	q.stats.Cut = q.stats.Cut || plan.Places == nil && plan.Stats.Cut
	for _, p := range gone {
		f.evicted[p] = false
	}
	return plan.Places
}

func (f *gangSearch) placeConfig() gang.Config {
	cfg := f.q.cfg.Config
	cfg.SkipExplanation = true
	return cfg
}

// cluster returns some of the nodes, without the evicted pods.
func (f *gangSearch) cluster(nodes []int32) *gang.Cluster {
	q := f.q
	c := &gang.Cluster{Nodes: make([]*vgpu.Node, 0, len(nodes)), Levels: slices.Clone(f.levels)}
	for _, i := range nodes {
		n := q.nodes[i]
		if slices.ContainsFunc(q.podsOn(int(i)), func(p int32) bool { return f.evicted[p] }) {
			n = q.without(n, int(i), func(p int32) bool { return f.evicted[p] })
		}
		c.Nodes = append(c.Nodes, n)
	}
	for l := range c.Levels {
		c.Levels[l] = restrictLevel(&f.levels[l], nodes)
	}
	if q.c.Admits != nil {
		c.Admits = func(kind, node int) int { return q.c.Admits(kind, int(nodes[node])) }
	}
	return c
}

// restrictLevel returns a level for some of the nodes, with the domains of these nodes.
func restrictLevel(l *gang.Level, nodes []int32) gang.Level {
	of := gang.Level{Key: l.Key, Domain: make([]int32, 0, len(nodes))}
	number := make(map[int32]int32, len(nodes))
	for _, i := range nodes {
		d := l.Domain[i]
		if d >= 0 {
			at, known := number[d]
			if !known {
				at = int32(len(of.Names))
				number[d], of.Names = at, append(of.Names, l.Names[d])
			}
			d = at
		}
		of.Domain = append(of.Domain, d)
	}
	return of
}

// pods lists the pods of units.
func (f *gangSearch) pods(units []Unit) []int32 {
	var list []int32
	for i := range units {
		for _, p := range units[i].Pods {
			list = append(list, int32(p))
		}
	}
	return list
}

// offer compares units that make room with the best answer so far.
func (f *gangSearch) offer(r *region, cost Cost, units []Unit) {
	if f.best == nil || cmp.Or(cost.Compare(f.best.cost), compareUnits(units, f.best.units)) < 0 {
		f.best, f.bestRegion = &answer{cost: cost, units: units}, r
	}
}
