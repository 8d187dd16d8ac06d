package gang

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// places gives the places of a trial to the members: those of a class in the order of their ranks, on the cells in an
// order that keeps each domain together, at every level. Members without a place have no node.
func (x *trial) places(reasons []*division) []vgpu.Assignment {
	w := x.chart.ground.crew
	list := make([]vgpu.Assignment, len(w.g.Members))
	for i := range list {
		list[i] = vgpu.Assignment{UID: w.g.Members[i].Request.UID, Pod: w.g.Members[i].Request.Pod}
	}
	next := make([]int, len(w.classes))
	for _, p := range x.together(reasons) {
		for _, a := range p.places {
			i := w.classes[p.class].members[next[p.class]]
			next[p.class]++
			a.UID, a.Pod = list[i].UID, list[i].Pod
			list[i] = a
		}
	}
	return list
}

// together orders the parts: by the domains of the level that has the fewest, then of the next, by name at each, and the
// cells at last.
func (x *trial) together(reasons []*division) []part {
	levels := slices.Clone(reasons)
	spreads := x.spreads(reasons)
	slices.SortStableFunc(levels, func(a, b *division) int {
		return cmp.Compare(spreads[slices.Index(reasons, a)], spreads[slices.Index(reasons, b)])
	})
	parts := slices.Clone(x.parts)
	slices.SortStableFunc(parts, func(a, b part) int {
		for _, v := range levels {
			if order := cmp.Compare(v.of[a.cell], v.of[b.cell]); order != 0 {
				return order
			}
		}
		return cmp.Compare(a.cell, b.cell)
	})
	return parts
}

// spreads counts the domains that the trial uses, those of the members with a place included.
func (x *trial) spreads(reasons []*division) []int {
	counts := make([]int, len(reasons))
	for at, v := range reasons {
		used := slices.Clone(v.opened)
		for i := range x.parts {
			used = append(used, v.of[x.parts[i].cell])
		}
		slices.Sort(used)
		counts[at] = len(slices.Compact(used))
	}
	return counts
}
