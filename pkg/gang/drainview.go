package gang

import (
	"cmp"
	"slices"
)

// view is the ground as a drain looks at it: before anybody has ended, and later.
type view struct {
	wait *wait
	// before has the room of now, on the same cells as the chart of task, on which all that leave are gone.
	before *chart
	task   *task
	// later has, beside the cells of task, those parts of them that are free by and by: see cut.
	later *chart
	// partsOf lists the parts of each cell.
	partsOf [][]int32
}

// over returns the view of islands or of nodes.
func (w *wait) over(islands bool, g *Group, r reasons, counts []int) *view {
	empty := w.emptied()
	v := &view{wait: w, before: w.now.chart(islands)}
	t := empty.chart(islands)
	v.later = chartOf(empty, w.cut(t.cells), len(t.cells))
	v.partsOf = make([][]int32, v.later.whole)
	for i := v.later.whole; i < len(v.later.cells); i++ {
		k := v.later.cells[i].whole
		v.partsOf[k] = append(v.partsOf[k], int32(i))
	}
	t.cost = v.cost
	v.task = t.task(g.Wishes.Required, r.preferred, r.nodes, t.load(counts))
	return v
}

// cut returns the cells and, after them, for each time that a device of a cell is waited for, the devices of the cell that
// are free by then: in the order of the times, then those with the most devices first.
func (w *wait) cut(whole []cell) []cell {
	type piece struct {
		cell
		long int64
	}
	var pieces []piece
	for i := range whole {
		at := &whole[i]
		var times []int64
		for d, long := range w.long[at.node] {
			if at.has(d) && long > 0 {
				times = append(times, long)
			}
		}
		slices.Sort(times)
		for _, long := range slices.Compact(times) {
			k := cell{node: at.node, whole: at.whole, devices: []int{}}
			for d := range w.long[at.node] {
				if at.has(d) && w.long[at.node][d] <= long {
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

// parts returns the parts of cells in the order in which they are free.
func (v *view) parts(cells []int32) []int32 {
	var parts []int32
	for _, i := range cells {
		parts = append(parts, v.partsOf[i]...)
	}
	slices.Sort(parts)
	return parts
}

// cost estimates what so much of a load waits for on cells: the time by which the last of it is free where times are
// known, else slots.
func (v *view) cost(cells []int32, l *load) int64 {
	need, cost := l.sum, int64(0)
	takes := make(map[int32]int64, len(cells))
	for _, i := range cells {
		takes[i] = v.before.takes(l, i)
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

// add adds to an estimate what so much of a load waits for on a cell.
func (w *wait) add(cost, more int64, k *cell) int64 {
	long := int64(0)
	for _, d := range k.devices {
		long = max(long, w.long[k.node][d])
	}
	if w.known {
		return max(cost, long)
	}
	return cost + more*long
}
