package gang

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// places assigns the places of an attempt to the members. Members of a class get them in the order of their ranks, on
// cells in an order that keeps each domain together at every level. A member without a place has no node.
func (x *attempt) places(objectives []*division) []vgpu.Assignment {
	mc := x.topology.snapshot.members
	list := make([]vgpu.Assignment, len(mc.g.Members))
	for i := range list {
		list[i] = vgpu.Assignment{UID: mc.g.Members[i].Request.UID, Pod: mc.g.Members[i].Request.Pod}
	}
	next := make([]int, len(mc.classes))
	for _, p := range x.orderParts(objectives) {
		for _, a := range p.places {
			i := mc.classes[p.class].members[next[p.class]]
			next[p.class]++
			a.UID, a.Pod = list[i].UID, list[i].Pod
			list[i] = a
		}
	}
	return list
}

// orderParts orders the parts by the domains of the objective that has the fewest domains, then of the next, by name at
// each. Cells decide ties.
func (x *attempt) orderParts(objectives []*division) []part {
	levels := slices.Clone(objectives)
	spreads := x.spreads(objectives)
	slices.SortStableFunc(levels, func(a, b *division) int {
		return cmp.Compare(spreads[slices.Index(objectives, a)], spreads[slices.Index(objectives, b)])
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

// spreads counts the domains that the attempt uses, those of the placed members included.
func (x *attempt) spreads(objectives []*division) []int {
	counts := make([]int, len(objectives))
	for at, v := range objectives {
		used := slices.Clone(v.inUse)
		for i := range x.parts {
			used = append(used, v.of[x.parts[i].cell])
		}
		slices.Sort(used)
		counts[at] = len(slices.Compact(used))
	}
	return counts
}
