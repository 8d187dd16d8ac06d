package preemption

// Bounds of the search on many nodes. Larger ones find cheaper victims where many nodes cost nearly the same.
const (
	// manyNodes is how many nodes may take all of Config.MaxSteps; after them a node has its first set.
	manyNodes = 16
	// fitSteps is how many steps count for one of a pod of several containers, which is placed anew in it, and stepsToFit bounds the search of each
	// such placement.
	fitSteps, stepsToFit = 128, 200
)

// within has a search take steps, each of which counts as some.
func (h *nodeSearch) within(counts int, search func()) {
	most := max(0, min(h.q.cfg.MaxSteps, h.allLeft/counts))
	h.stepsLeft = most
	search()
	h.allLeft -= counts * (most - h.stepsLeft)
}

// step counts one set of units that the search tries, and reports whether the node has steps left.
func (h *nodeSearch) step() bool {
	h.q.stats.Steps++
	if h.stepsLeft--; h.stepsLeft < 0 {
		h.worthSearch = true
		h.q.stats.Cut = h.q.stats.Cut || !h.probing
	}
	return h.stepsLeft >= 0
}
