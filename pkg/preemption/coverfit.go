package preemption

// solveByFit looks for the cheapest pods of a node by placing the preemptor without them. The method is for several
// containers, whose room is not the sum of what each pod gives back.
func (v *cover) solveByFit() {
	v.reset()
	for _, p := range v.search.node.pods {
		v.addItem(p, amount{})
	}
	v.order()
	if v.fitsWithout(0) {
		v.searchByFit(0)
	}
}

// fitsWithout reports whether the preemptor fits without the victims and without all items after the first `from`.
func (v *cover) fitsWithout(from int) bool {
	q, node := v.search.q, v.search.node.node
	return v.search.fits(q.without(q.nodes[node], node, func(p int32) bool {
		return v.search.victims.evicted[p] || int(v.slot[p]) > from
	}))
}

// searchByFit decides about the items from at on, after each new victim.
func (v *cover) searchByFit(at int) {
	if v.fitsWithout(len(v.items)) {
		v.found = true
		v.search.offer()
		return
	}
	v.decideByFit(at)
}

// decideByFit is searchByFit where the victims are not enough.
func (v *cover) decideByFit(at int) {
	if v.search.notCheaper() || !v.step() {
		return
	}
	for at < len(v.items) && v.search.victims.evicted[v.items[at].pod] {
		at++
	}
	if at == len(v.items) {
		return
	}
	if v.fitsWithout(at + 1) {
		v.decideByFit(at + 1)
	}
	m := v.search.victims.mark()
	if v.search.victims.add(v.items[at].pod) {
		v.searchByFit(at + 1)
	}
	v.search.victims.undo(m)
}
