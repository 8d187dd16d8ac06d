package gang

import (
	"cmp"
	"slices"
)

// drainView is the snapshot as a drain sees it: now, and after pods have ended.
type drainView struct {
	wait *waitTimes
	// now has the free room of the present, on the same cells as the topology of problem. On that topology all pods are
	// gone that may end.
	now     *topology
	problem *problem
	// later has the cells of problem and those parts of them that become free in turn: see cut.
	later *topology
	// partsOf lists the parts of each cell.
	partsOf [][]int32
}

// drainView returns the view of islands or of nodes.
func (w *waitTimes) drainView(islands bool, g *Group, r objectives, counts []int) *drainView {
	empty := w.emptied()
	v := &drainView{wait: w, now: w.now.topology(islands)}
	t := empty.topology(islands)
	v.later = topologyOf(empty, w.cut(t.cells), len(t.cells))
	v.partsOf = make([][]int32, v.later.whole)
	for i := v.later.whole; i < len(v.later.cells); i++ {
		k := v.later.cells[i].whole
		v.partsOf[k] = append(v.partsOf[k], int32(i))
	}
	t.cost = v.cost
	v.problem = t.problem(g.Wishes.Required, r.preferred, r.nodes, t.load(counts))
	return v
}

// cut returns the cells and, after them, the parts of each cell that become free. Each wait time of a device has one
// part, with the devices of the cell that are free by then. Parts are in the order of their times, then those with the
// most devices first.
func (w *waitTimes) cut(whole []cell) []cell {
	type piece struct {
		cell
		long int64
	}
	var pieces []piece
	for i := range whole {
		at := &whole[i]
		var times []int64
		for d, long := range w.ofDevice[at.node] {
			if at.has(d) && long > 0 {
				times = append(times, long)
			}
		}
		slices.Sort(times)
		for _, long := range slices.Compact(times) {
			k := cell{node: at.node, whole: at.whole, devices: []int{}}
			for d := range w.ofDevice[at.node] {
				if at.has(d) && w.ofDevice[at.node][d] <= long {
					k.devices = append(k.devices, d)
				}
			}
			pieces = append(pieces, piece{k, long})
		}
	}
	slices.SortStableFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.long, b.long), cmp.Compare(len(b.devices), len(a.devices)))
	})
	cells := slices.Clone(whole)
	for i := range pieces {
		cells = append(cells, pieces[i].cell)
	}
	return cells
}

// parts returns the parts of cells in the order in which they become free.
func (v *drainView) parts(cells []int32) []int32 {
	var parts []int32
	for _, i := range cells {
		parts = append(parts, v.partsOf[i]...)
	}
	slices.Sort(parts)
	return parts
}

// cost estimates the wait of a load on cells: the time at which its last part becomes free where times are known, else
// slots.
func (v *drainView) cost(cells []int32, l *load) int64 {
	need, cost := l.sum, int64(0)
	takes := make(map[int32]int64, len(cells))
	for _, i := range cells {
		takes[i] = v.now.takes(l, i)
		need -= takes[i]
	}
	if need <= 0 {
		return 0
	}
	for _, i := range v.parts(cells) {
		k := &v.later.cells[i]
		more := min(need, v.later.takes(l, i)-takes[k.whole])
		if more <= 0 {
			continue
		}
		takes[k.whole] += more
		cost = v.wait.add(cost, more, k)
		if need -= more; need <= 0 {
			break
		}
	}
	return cost
}

// add adds the wait of a part of a load on a cell to an estimate.
func (w *waitTimes) add(cost, more int64, k *cell) int64 {
	long := int64(0)
	for _, d := range k.devices {
		long = max(long, w.ofDevice[k.node][d])
	}
	if w.endsKnown {
		return max(cost, long)
	}
	return cost + more*long
}
