package preemption

// try looks for the cheapest pods of a node by placing the preemptor where they are gone: for several containers room is not the
// sum of what each gives back.
func (v *cover) try() {
	v.clear()
	for _, p := range v.h.site.pods {
		v.offer(p, amount{})
	}
	v.order()
	if v.fits(0) {
		v.reach(0)
	}
}

// fits reports whether the preemptor fits once those are gone that go, and all items from one on.
func (v *cover) fits(from int) bool {
	q, node := v.h.q, v.h.site.node
	return v.h.fits(q.without(q.nodes[node], node, func(p int32) bool {
		return v.h.picked.gone[p] || int(v.slot[p]) > from
	}))
}

// reach decides about the items from at on after somebody went.
func (v *cover) reach(at int) {
	if v.fits(len(v.items)) {
		v.found = true
		v.h.offer()
		return
	}
	v.choose(at)
}

// choose is reach where those that go are known not to be enough.
func (v *cover) choose(at int) {
	if v.h.hopeless() || !v.step() {
		return
	}
	for at < len(v.items) && v.h.picked.gone[v.items[at].pod] {
		at++
	}
	if at == len(v.items) {
		return
	}
	if v.fits(at + 1) {
		v.choose(at + 1)
	}
	m := v.h.picked.mark()
	if v.h.picked.add(v.items[at].pod) {
		v.reach(at + 1)
	}
	v.h.picked.undo(m)
}
