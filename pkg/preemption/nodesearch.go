package preemption

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// hunt looks for the cheapest pods that make room for one pod on one node.
type hunt struct {
	q      *question
	r      *vgpu.Request
	picked *choice
	cover  cover
	site   site
	sets   sets
	best   *find
	// left is the number of steps that are left for the node.
	left int
	// probing says that only one container is asked for, to see whether the node is worth a search: worth, where it is.
	probing, worth bool
	names          []string
}

// find is the best units so far, on one node.
type find struct {
	answer
	node  int
	score int64
}

// compare orders finds of the same units on several nodes.
func (f *find) compare(o *find) int {
	return cmp.Or(cmp.Compare(len(f.waits), len(o.waits)), cmp.Compare(o.score, f.score), cmp.Compare(f.node, o.node))
}

// pod answers for a preemptor that is one pod.
func (q *question) pod() *answer {
	h := &hunt{q: q, r: &q.g.Members[0].Request, picked: newChoice(q)}
	h.cover = cover{h: h, slot: make([]int32, len(q.who.Pods))}
	h.sets.h = h
	for _, d := range h.nodes() {
		if h.best != nil && d.least.Compare(h.best.cost) > 0 {
			break
		}
		q.stats.Places++
		h.visit(int(d.node))
	}
	if h.best == nil {
		return nil
	}
	if q.stats.Cut {
		h.reprieve()
	}
	return &h.best.answer
}

// door is a node with the least that room on it can cost.
type door struct {
	node  int32
	least Cost
}

// nodes lists the nodes that may make room, the cheapest first by a first look.
func (h *hunt) nodes() []door {
	list := make([]door, 0, len(h.q.nodes))
	for i := range h.q.nodes {
		if h.q.c.Admits != nil && h.q.c.Admits(h.q.g.Members[0].Kind, i) < 1 {
			continue
		}
		if least, some := h.least(i); some {
			list = append(list, door{int32(i), least})
		}
	}
	slices.SortFunc(list, func(a, b door) int { return cmp.Or(a.least.Compare(b.least), cmp.Compare(a.node, b.node)) })
	return list
}

// least returns what room on a node costs at least: nothing where the pod fits, else what the cheapest of its pods costs.
func (h *hunt) least(node int) (least Cost, some bool) {
	if h.fitsNow(node) {
		return Cost{}, true
	}
	for _, p := range h.q.placed[h.q.from[node]:h.q.from[node+1]] {
		if !h.q.may[p] {
			continue
		}
		if c := h.q.lone(p); !some || c.Compare(least) < 0 {
			least, some = c, true
		}
	}
	return least, some
}

// fitsNow reports whether the node has room for the pod once those that leave are gone, by all but promises.
func (h *hunt) fitsNow(node int) bool {
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
	return free >= h.r.PeakSlots() && placement.Fit(n, h.r) == nil
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

// lacksOf returns what a host lacks of what a pod asks of it. Of what it does not ask for nothing is lacking.
func lacksOf(room, asks vgpu.Room) (lacks amount) {
	if asks.MilliCPU > 0 {
		lacks[3] = vgpu.Difference(asks.MilliCPU, room.MilliCPU)
	}
	if asks.Memory > 0 {
		lacks[4] = int64(vgpu.Difference(asks.Memory, room.Memory))
	}
	return lacks
}

// visit looks for the cheapest pods on one node.
func (h *hunt) visit(node int) {
	h.site.look(h, node)
	h.left = h.q.cfg.MaxSteps
	switch len(h.r.Containers) {
	case 0:
		h.onHost(h.site.lacks)
	case 1:
		h.onDevices(0)
	default:
		if h.best == nil || h.probe() {
			h.cover.try()
		}
	}
}

// probe reports whether the containers may have room for no more than the best costs so far: each of them by itself.
func (h *hunt) probe() bool {
	h.probing, h.worth = true, true
	for c := 0; c < len(h.r.Containers) && h.worth; c++ {
		h.worth, h.left = false, h.q.cfg.MaxSteps
		h.onDevices(c)
	}
	h.probing, h.left = false, h.q.cfg.MaxSteps
	return h.worth
}

// onDevices looks at each device, or at the sets of whole devices of each shape, for a container.
func (h *hunt) onDevices(c int) {
	n := h.site.n
	var share vgpu.Share
	legal := false
	for i := range n.Devices() {
		first := !slices.Contains(h.site.shapes[:i], n.Shape(i))
		if first || n.Shape(i) != n.Shape(i-1) {
			share, legal = h.r.ShareOn(c, &n.Devices()[i])
		}
		switch {
		case !legal:
		case share.Devices == 1 && !h.site.sick[i]:
			h.onDevice(i, share.Use())
		case first && share.Devices > 1:
			h.sets.solve(i, &share)
		}
	}
}

// onDevice looks for the cheapest pods that give back a use of one device, and what the host lacks.
func (h *hunt) onDevice(i int, use vgpu.Use) {
	lacks := h.site.lacksOn(i, use)
	h.cover.clear()
	for _, t := range h.site.takes {
		if t.device == i {
			h.cover.offer(t.pod, amountOf(t.use, h.q.who.Pods[t.pod].Host))
		}
	}
	if h.site.poor {
		for _, p := range h.site.pods {
			if !h.site.takesOf(p, i) {
				h.cover.offer(p, amountOf(vgpu.Use{}, h.q.who.Pods[p].Host))
			}
		}
	}
	h.cover.solve(lacks)
}

// onHost looks for the cheapest pods, beside those that are gone, that give back what the host lacks.
func (h *hunt) onHost(lacks amount) {
	h.cover.clear()
	for _, p := range h.site.pods {
		h.cover.offer(p, amountOf(vgpu.Use{}, h.q.who.Pods[p].Host))
	}
	h.cover.solve(lacks)
}

// step counts one set of units that is looked at, and reports whether the node has steps left.
func (h *hunt) step() bool {
	h.q.stats.Steps++
	if h.left--; h.left < 0 {
		h.worth = true
		h.q.stats.Cut = h.q.stats.Cut || !h.probing
	}
	return h.left >= 0
}

// hopeless reports whether what is picked costs as much as the best already, so that with anybody more it costs more.
func (h *hunt) hopeless() bool {
	return h.probing && h.worth || h.best != nil && h.picked.cost.Compare(h.best.cost) >= 0
}

// offer compares what is picked, which gives back enough, with the best so far. It reports false where the pod does not fit all
// the same, since a promise would break.
func (h *hunt) offer() bool {
	order := h.order()
	switch {
	case order > 0 || order == 0 && h.best.node == h.site.node:
		return true
	case h.probing:
		h.worth = true
		return true
	}
	f := h.settle()
	if f == nil {
		return false
	}
	if order < 0 || f.compare(h.best) < 0 {
		f.units = h.picked.units()
		h.best = f
	}
	return true
}

// order compares what is picked with the best so far: by cost, then by the names of the units. It is cheaper than nothing.
func (h *hunt) order() int {
	if h.best == nil {
		return -1
	}
	order := h.picked.cost.Compare(h.best.cost)
	if order == 0 {
		h.names = h.picked.names(h.names[:0])
		order = slices.CompareFunc(h.names, h.best.units, func(name string, u Unit) int { return strings.Compare(name, u.Name) })
	}
	return order
}

// settle places the pod on the node once what is picked is gone, with as few pods to wait for as any of them can be left
// out. It returns nil where the pod does not fit.
func (h *hunt) settle() *find {
	f := &find{node: h.site.node}
	f.cost = h.picked.cost
	n, waits := h.spareLeaving()
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

// spareLeaving returns the node once what is picked is gone, and those who leave as far as their room is needed. Those with
// the last names are waited for only if the others are not enough. It returns nil where all are not enough.
func (h *hunt) spareLeaving() (*vgpu.Node, []int) {
	q, node := h.q, h.site.node
	n := q.without(q.nodes[node], node, func(p int32) bool { return h.picked.gone[p] })
	if !h.fits(n) {
		return nil, nil
	}
	leaving := slices.Clone(q.leaving(node))
	slices.SortFunc(leaving, func(a, b int32) int { return cmp.Compare(q.who.Pods[b].Name, q.who.Pods[a].Name) })
	var waits []int
	for k, p := range leaving {
		less := q.without(q.c.Nodes[node], node, func(o int32) bool {
			return h.picked.gone[o] || slices.Contains(leaving[k+1:], o) || slices.Contains(waits, int(o))
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

// fits reports whether a node in some state takes the pod.
func (h *hunt) fits(n *vgpu.Node) bool {
	lacks := lacksOf(n.Room(), h.r.Host)
	return lacks.met() && h.q.cfg.Policy.Fit(n, h.r) == nil
}

// reprieve spares what can stay of a best set that a search may have found before it was cut.
func (h *hunt) reprieve() {
	h.site.look(h, h.best.node)
	s := h.picked
	var needed []int32
	for _, u := range h.best.units {
		for _, p := range u.Pods {
			needed = append(needed, int32(p))
		}
	}
	slices.SortFunc(needed, func(a, b int32) int {
		return cmp.Or(h.q.lone(b).Compare(h.q.lone(a)), cmp.Compare(h.q.who.Pods[b].Name, h.q.who.Pods[a].Name))
	})
	for at := 0; at < len(needed); {
		rest := slices.Delete(slices.Clone(needed), at, at+1)
		m := s.mark()
		if s.all(rest) && h.settle() != nil {
			needed = rest
		} else {
			at++
		}
		s.undo(m)
	}
	if s.all(needed) {
		h.offer()
	}
	s.undo(mark{})
}
