package preemption

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// field looks for the cheapest pods that make room for a gang. What fits is what gang.Place places.
type field struct {
	q *question
	// classes are the members that must get a place, see gang.Group.Classes. Exact says that gang.Place finds places for them
	// whenever there are any, so that nobody's leaving takes a place away.
	classes [][]int
	exact   bool
	// open nodes take a member as they are, useful ones once all are gone that may go.
	open, useful []bool
	// held are the nodes of the members that have a place.
	held []int32
	// levels are those of the wishes.
	levels []gang.Level
	// regionOf numbers the region of each node, −1 for none.
	regionOf []int32
	picked   *choice
	gone     []bool
	// left is how many more sets are looked at, listed how many more are listed.
	left, listed int
	// asks is how many reprieves of a region are tried.
	asks int
	// ranked says that guesses have been made.
	ranked bool
	// best so far, in a region.
	best *answer
	in   *region
}

// group answers for a gang. A gang goes to the domain of the required levels where the cheapest units make room. Where a domain
// has no more than MaxSteps sets of units, all of them are compared; in a larger one members take the room that is cheapest one
// by one, and whoever can stay is reprieved.
func (q *question) group() *answer {
	f := newField(q)
	if places := f.room(nil, nil); places != nil {
		return f.settle(&answer{units: []Unit{}}, places)
	}
	regions := f.regions()
	q.stats.Places = len(regions)
	if f.exact {
		regions = slices.DeleteFunc(regions, func(r *region) bool { return f.room(r, r.pods) == nil })
	}
	if len(regions) > 1 {
		f.rank(regions)
	}
	for _, r := range regions {
		f.visit(r)
	}
	if f.best == nil {
		return nil
	}
	gone := f.pods(f.best.units)
	places := f.room(nil, gone)
	if places == nil {
		places = f.room(f.in, gone) // gang.Place tries MaxDomains of them only
	}
	if places == nil {
		// gang.Place is greedy: it may miss with all units gone what it found with some of them. Nobody is evicted for that.
		q.stats.Cut = true
		return nil
	}
	return f.settle(f.best, places)
}

// listsPerStep is how many sets are listed for each that may be looked at: listing one takes a microsecond, looking at one some
// fifty. More finds more domains of which all sets are few.
const listsPerStep = 16

func newField(q *question) *field {
	f := &field{q: q, picked: newChoice(q), gone: make([]bool, len(q.who.Pods)), left: q.cfg.MaxSteps, listed: listsPerStep * q.cfg.MaxSteps}
	f.asks = maxSpared / len(q.g.Members)
	classes, alike := q.g.Classes()
	f.classes = classes
	f.exact = alike && len(q.g.Members[0].Request.Containers) <= 1 && q.g.Members[0].Request.MaxSlowdown == 0
	f.unhold()
	for i := range q.c.Levels {
		if l := &q.c.Levels[i]; slices.Contains(q.g.Wishes.Required, l.Key) || slices.Contains(q.g.Wishes.Preferred, l.Key) {
			f.levels = append(f.levels, *l)
		}
	}
	for i := range q.g.Placed {
		if at := slices.IndexFunc(q.nodes, func(n *vgpu.Node) bool { return n.Name() == q.g.Placed[i].Node }); at >= 0 {
			f.held = append(f.held, int32(at))
		}
	}
	slices.Sort(f.held)
	f.held = slices.Compact(f.held)
	f.open, f.useful = make([]bool, len(q.nodes)), make([]bool, len(q.nodes))
	for i, n := range q.nodes {
		f.open[i] = f.takes(i, n)
		f.useful[i] = f.open[i] || slices.ContainsFunc(q.on(i), func(p int32) bool { return q.may[p] }) &&
			f.takes(i, q.without(n, i, func(p int32) bool { return q.may[p] }))
	}
	return f
}

// unhold takes the holds of the members out of the ledgers, and notes promises.
func (f *field) unhold() {
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

// takes reports whether a node takes a member of any class.
func (f *field) takes(i int, n *vgpu.Node) bool {
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

// region is the nodes of one domain of each required level that may take members, in the order of their names.
type region struct {
	number int32
	nodes  []int32
	// pods on them may be victims.
	pods []int32
	// guess is who goes where members take the cheapest room one by one, and what that costs; nil for nobody knows.
	guess []int32
	cost  Cost
}

// regions returns the domains in which the gang may find room, by their first nodes.
func (f *field) regions() []*region {
	q := f.q
	var list []*region
	f.regionOf = make([]int32, len(q.nodes))
	byKey := map[string]*region{}
	for i := range q.nodes {
		f.regionOf[i] = -1
		key, named := f.key(i)
		if !named || !f.useful[i] && !slices.Contains(f.held, int32(i)) {
			continue
		}
		r := byKey[key]
		if r == nil {
			r = &region{number: int32(len(list))}
			byKey[key], list = r, append(list, r)
		}
		f.regionOf[i] = r.number
		r.nodes = append(r.nodes, int32(i))
		for _, p := range q.on(i) {
			if q.may[p] && f.useful[i] {
				r.pods = append(r.pods, p)
			}
		}
	}
	return slices.DeleteFunc(list, func(r *region) bool {
		return slices.ContainsFunc(f.held, func(i int32) bool { return f.regionOf[i] != r.number })
	})
}

// key names the domain of a node, and reports whether it has all labels.
func (f *field) key(i int) (key string, named bool) {
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

// visit looks for the cheapest pods in one region.
func (f *field) visit(r *region) {
	if f.compare(r) {
		return
	}
	f.q.stats.Cut = true
	if f.best != nil && (r.guess == nil || r.cost.Compare(f.best.cost) >= 0) {
		return
	}
	if !f.ranked {
		f.rank([]*region{r})
	}
	pods := r.guess
	if pods == nil || f.room(r, pods) == nil {
		pods = f.cheapest(r)
	}
	if pods != nil {
		f.reprieve(r, pods)
	}
}

// room returns places for the gang in a region once some pods are gone, in any region for nil. It returns nil where there are
// none. Nodes that take no member are left out.
func (f *field) room(r *region, gone []int32) []vgpu.Assignment {
	q := f.q
	q.stats.Steps++
	within := func(i int32) bool { return r == nil || f.regionOf[i] == r.number }
	touched := slices.Clone(f.held)
	for _, p := range gone {
		f.gone[p] = true
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
	plan, err := gang.Place(f.cluster(slices.Compact(touched)), q.g, f.brief())
	if err != nil {
		panic(err) // Victims has validated it
	}
	q.stats.Cut = q.stats.Cut || plan.Places == nil && plan.Stats.Cut
	for _, p := range gone {
		f.gone[p] = false
	}
	return plan.Places
}

func (f *field) brief() gang.Config {
	cfg := f.q.cfg.Config
	cfg.SkipExplanation = true
	return cfg
}

// cluster returns some of the nodes, without those that are gone.
func (f *field) cluster(nodes []int32) *gang.Cluster {
	q := f.q
	c := &gang.Cluster{Nodes: make([]*vgpu.Node, 0, len(nodes)), Levels: slices.Clone(f.levels)}
	for _, i := range nodes {
		n := q.nodes[i]
		if slices.ContainsFunc(q.on(int(i)), func(p int32) bool { return f.gone[p] }) {
			n = q.without(n, int(i), func(p int32) bool { return f.gone[p] })
		}
		c.Nodes = append(c.Nodes, n)
	}
	for l := range c.Levels {
		c.Levels[l] = part(&f.levels[l], nodes)
	}
	if q.c.Admits != nil {
		c.Admits = func(kind, node int) int { return q.c.Admits(kind, int(nodes[node])) }
	}
	return c
}

// part is a level of some of the nodes, with the domains that these are in.
func part(l *gang.Level, nodes []int32) gang.Level {
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

// pods lists those of units.
func (f *field) pods(units []Unit) []int32 {
	var list []int32
	for i := range units {
		for _, p := range units[i].Pods {
			list = append(list, int32(p))
		}
	}
	return list
}

// offer compares units that make room with the best so far.
func (f *field) offer(r *region, cost Cost, units []Unit) {
	if f.best == nil || cmp.Or(cost.Compare(f.best.cost), compareUnits(units, f.best.units)) < 0 {
		f.best, f.in = &answer{cost: cost, units: units}, r
	}
}
