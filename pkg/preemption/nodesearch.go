package preemption

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// nodeSearch looks for the cheapest pods whose eviction makes room for one pod on one node.
type nodeSearch struct {
	q       *question
	r       *vgpu.Request
	victims *victimSet
	cover   cover
	node    nodeView
	sets    deviceSets
	best    *nodePlan
	// stepsLeft is the remaining number of steps for the node, allLeft that for all nodes.
	stepsLeft, allLeft int
	// probing says that the search looks at one container only, to see whether the node is worth a full search.
	// worthSearch is the result.
	probing, worthSearch bool
	names                []string
}

// nodePlan is the best units so far, on one node.
type nodePlan struct {
	answer
	node  int
	score int64
}

// compare orders plans with the same units on several nodes.
func (f *nodePlan) compare(o *nodePlan) int {
	return cmp.Or(cmp.Compare(len(f.waits), len(o.waits)), cmp.Compare(o.score, f.score), cmp.Compare(f.node, o.node))
}

// pod answers for a preemptor that is one pod.
func (q *question) pod() *answer {
	h := &nodeSearch{q: q, r: &q.g.Members[0].Request, victims: newVictimSet(q), allLeft: manyNodes * q.cfg.MaxSteps}
	if len(h.r.Containers) > 1 {
		r := *h.r
		r.Steps = placement.Fewer(&r, stepsToFit)
		h.r = &r
	}
	h.cover = cover{search: h, slot: make([]int32, len(q.candidates.Pods))}
	h.sets.search = h
	for _, d := range h.candidates() {
		if h.best != nil && d.least.Compare(h.best.cost) > 0 {
			break
		}
		if h.best != nil && h.allLeft <= 0 && len(h.r.Containers) > 1 {
			q.stats.Cut = true
			break
		}
		q.stats.Places++
		h.searchNode(int(d.node))
	}
	if h.best == nil {
		return nil
	}
	if q.stats.Cut {
		h.reprieve()
	}
	return &h.best.answer
}

// nodeCandidate is a node with the least cost of making room on it.
type nodeCandidate struct {
	node  int32
	least Cost
}

// candidates lists the nodes that may have room after evictions, the least cost first.
func (h *nodeSearch) candidates() []nodeCandidate {
	list := make([]nodeCandidate, 0, len(h.q.nodes))
	for i := range h.q.nodes {
		if !h.admits(i) {
			continue
		}
		if least, some := h.leastCost(i); some {
			list = append(list, nodeCandidate{int32(i), least})
		}
	}
	slices.SortFunc(list, func(a, b nodeCandidate) int { return cmp.Or(a.least.Compare(b.least), cmp.Compare(a.node, b.node)) })
	return list
}

// leastCost returns the least cost of room on a node: nothing where the pod fits, else the cost of the cheapest pod
// there.
func (h *nodeSearch) leastCost(node int) (least Cost, some bool) {
	if h.fitsNow(node) {
		return Cost{}, true
	}
	for _, p := range h.q.placed[h.q.from[node]:h.q.from[node+1]] {
		if !h.q.evictable[p] {
			continue
		}
		if some && least.Slow == 0 && h.q.prices[p].price > least.Price {
			continue // with its budgets and its gang it costs no less
		}
		if c := h.q.costAlone(p); !some || c.Compare(least) < 0 {
			least, some = c, true
		}
	}
	return least, some
}

// fitsNow reports whether the node has room for the pod once the leaving pods have ended. For one container it does not
// check promises.
func (h *nodeSearch) fitsNow(node int) bool {
	n := h.q.nodes[node]
	if lacks := lacksOf(n.Room(), h.r.Host); !lacks.met() {
		return false
	}
	switch len(h.r.Containers) {
	case 0:
		return true
	case 1:
		return fitsOne(n, h.r)
	}
	free := vgpu.Slots(0)
	for i := range n.Devices() {
		free += n.FreeFor(i, h.r).Slots
	}
	return free >= h.r.PeakSlots() && placement.Policy{}.Fits(n, h.r)
}

// fitsOne is placement.Fit for a request of one container, without the reason.
func fitsOne(n *vgpu.Node, r *vgpu.Request) bool {
	devices := n.Devices()
	for i := range devices {
		if n.FreeFor(i, r).Slots == 0 {
			continue
		}
		share, legal := r.ShareOn(0, &devices[i])
		count := 0
		for j := i; legal && j < len(devices); j++ {
			if n.Shape(j) == n.Shape(i) && share.Use().Within(n.FreeFor(j, r)) {
				count++
			}
		}
		if legal && count >= share.Devices {
			return true
		}
	}
	return false
}

// lacksOf returns what a host lacks of a pod's request. Only resources in the request count.
func lacksOf(room, asks vgpu.Room) (lacks amount) {
	if asks.MilliCPU > 0 {
		lacks[3] = vgpu.Difference(asks.MilliCPU, room.MilliCPU)
	}
	if asks.Memory > 0 {
		lacks[4] = int64(vgpu.Difference(asks.Memory, room.Memory))
	}
	return lacks
}

// searchNode looks for the cheapest pods on one node.
func (h *nodeSearch) searchNode(node int) {
	h.node.load(h, node)
	switch len(h.r.Containers) {
	case 0:
		h.within(1, func() { h.onHost(h.node.hostLacks) })
	case 1:
		h.within(1, func() { h.onDevices(0) })
	default:
		if h.best == nil || h.probe() {
			h.within(fitSteps, h.cover.solveByFit)
		}
	}
}

// probe reports whether each container by itself may have room for no more than the best cost so far.
func (h *nodeSearch) probe() bool {
	h.probing, h.worthSearch = true, true
	for c := 0; c < len(h.r.Containers) && h.worthSearch; c++ {
		h.worthSearch = false
		h.within(1, func() { h.onDevices(c) })
	}
	h.probing = false
	return h.worthSearch
}

// onDevices looks at each device, or at the sets of whole devices of each shape, for a container.
func (h *nodeSearch) onDevices(c int) {
	n := h.node.n
	var share vgpu.Share
	legal := false
	for i := range n.Devices() {
		first := !slices.Contains(h.node.shapes[:i], n.Shape(i))
		if first || n.Shape(i) != n.Shape(i-1) {
			share, legal = h.r.ShareOn(c, &n.Devices()[i])
		}
		switch {
		case !legal:
		case share.Devices == 1 && !h.node.sick[i]:
			h.onDevice(i, share.Use())
		case first && share.Devices > 1:
			h.sets.solve(i, &share)
		}
	}
}

// onDevice looks for the cheapest pods that give back what one device and the host lack for a use.
func (h *nodeSearch) onDevice(i int, use vgpu.Use) {
	lacks := h.node.lacksOn(i, use)
	h.cover.reset()
	for _, t := range h.node.podUses {
		if t.device == i {
			h.cover.addItem(t.pod, amountOf(t.use, h.q.candidates.Pods[t.pod].Host))
		}
	}
	if h.node.hostShort {
		for _, p := range h.node.pods {
			if !h.node.takesOf(p, i) {
				h.cover.addItem(p, amountOf(vgpu.Use{}, h.q.candidates.Pods[p].Host))
			}
		}
	}
	h.cover.solve(lacks)
}

// onHost looks for the cheapest pods, beside the victims so far, that give back what the host lacks.
func (h *nodeSearch) onHost(lacks amount) {
	h.cover.reset()
	for _, p := range h.node.pods {
		h.cover.addItem(p, amountOf(vgpu.Use{}, h.q.candidates.Pods[p].Host))
	}
	h.cover.solve(lacks)
}

// notCheaper reports whether the victims cost as much as the best plan already; with any further victim they cost more.
func (h *nodeSearch) notCheaper() bool {
	return h.probing && h.worthSearch || h.best != nil && h.victims.cost.Compare(h.best.cost) >= 0
}

// offer compares the victims, which give back enough, with the best plan so far. The result is false where the pod
// still does not fit, since a promise would break.
func (h *nodeSearch) offer() bool {
	order := h.compareBest()
	switch {
	case order > 0 || order == 0 && h.best.node == h.node.node:
		return true
	case h.probing:
		h.worthSearch = true
		return true
	}
	f := h.placePod()
	if f == nil {
		return false
	}
	if order < 0 || f.compare(h.best) < 0 {
		f.units = h.victims.units()
		h.best = f
	}
	return true
}

// compareBest compares the victims with the best plan so far: by cost, then by the names of the units. Any plan is
// better than none.
func (h *nodeSearch) compareBest() int {
	if h.best == nil {
		return -1
	}
	order := h.victims.cost.Compare(h.best.cost)
	if order == 0 {
		h.names = h.victims.names(h.names[:0])
		order = slices.CompareFunc(h.names, h.best.units, func(name string, u Unit) int { return strings.Compare(name, u.Name) })
	}
	return order
}

// placePod places the pod on the node without the victims. The place needs a set of leaving pods from which it can drop
// none. nil means that the pod does not fit.
func (h *nodeSearch) placePod() *nodePlan {
	f := &nodePlan{node: h.node.node}
	f.cost = h.victims.cost
	n, waits := h.fewestWaits()
	if n == nil {
		return nil
	}
	a, score, refusal := h.q.cfg.Policy.AssignScored(n, h.r)
	if refusal != nil {
		return nil
	}
	f.places, f.score, f.waits = []vgpu.Assignment{a}, score, waits
	return f
}

// fewestWaits returns the node without the victims, and the leaving pods whose room the preemptor needs. The pods with
// the last names come in only if the others are not enough. nil means that all are not enough.
func (h *nodeSearch) fewestWaits() (*vgpu.Node, []int) {
	q, node := h.q, h.node.node
	n := q.without(q.nodes[node], node, func(p int32) bool { return h.victims.evicted[p] })
	if !h.fits(n) {
		return nil, nil
	}
	leaving := slices.Clone(q.leaving(node))
	slices.SortFunc(leaving, func(a, b int32) int { return cmp.Compare(q.candidates.Pods[b].Name, q.candidates.Pods[a].Name) })
	var waits []int
	for k, p := range leaving {
		less := q.without(q.c.Nodes[node], node, func(o int32) bool {
			return h.victims.evicted[o] || slices.Contains(leaving[k+1:], o) || slices.Contains(waits, int(o))
		})
		if h.fits(less) {
			n = less
		} else {
			waits = append(waits, int(p))
		}
	}
	slices.Sort(waits)
	return n, waits
}

// fits reports whether a node with a given ledger takes the pod.
func (h *nodeSearch) fits(n *vgpu.Node) bool {
	lacks := lacksOf(n.Room(), h.r.Host)
	return lacks.met() && h.q.cfg.Policy.Fits(n, h.r)
}

// reprieve spares units of the best plan without which the pod fits. A search that a bound cut may have found such a
// plan. A gang that ends as a whole also makes room on other nodes, so the pod may move to one of them.
func (h *nodeSearch) reprieve() {
	s, at := h.victims, h.best.node
	var needed []int32
	for _, u := range h.best.units {
		for _, p := range u.Pods {
			needed = append(needed, int32(p))
		}
	}
	slices.SortFunc(needed, func(a, b int32) int {
		return cmp.Or(h.q.costAlone(b).Compare(h.q.costAlone(a)), cmp.Compare(h.q.candidates.Pods[b].Name, h.q.candidates.Pods[a].Name))
	})
	for k := 0; k < len(needed); {
		rest := slices.Delete(slices.Clone(needed), k, k+1)
		m := s.mark()
		if node := h.fitsOnAny(rest, at); node >= 0 {
			needed, at = rest, node
		} else {
			k++
		}
		s.undo(m)
	}
	h.node.load(h, at)
	if s.addAll(needed) {
		h.offer()
	}
	s.undo(mark{})
}

// fitsOnAny evicts pods, and returns a node where the pod then fits: the first one given, or one that an evicted pod
// leaves. −1 stands for no node.
func (h *nodeSearch) fitsOnAny(pods []int32, first int) int {
	s := h.victims
	if !s.addAll(pods) {
		return -1
	}
	nodes := []int{first}
	for _, p := range s.trail {
		if i := int(h.q.nodeOf[p]); i >= 0 && !slices.Contains(nodes, i) && h.admits(i) {
			nodes = append(nodes, i)
		}
	}
	for _, i := range nodes {
		if h.node.node = i; h.placePod() != nil {
			return i
		}
	}
	return -1
}

// admits reports whether what the caller knows of a node admits the pod there.
func (h *nodeSearch) admits(node int) bool {
	return h.q.c.Admits == nil || h.q.c.Admits(h.q.g.Members[0].Kind, node) >= 1
}
