package preemption

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// cheapest returns pods of a region whose eviction makes room. The search takes as many as necessary, from the cheapest
// to the dearest, and keeps those on the nodes that the gang then goes to. nil means that not even all pods make room.
func (f *gangSearch) cheapest(r *region) []int32 {
	order := slices.Clone(r.pods)
	f.sortDearestFirst(order)
	slices.Reverse(order)
	places := f.placesAfter(r, f.closure(order))
	if places == nil {
		return nil
	}
	enough := sort.Search(len(order), func(count int) bool {
		found := f.placesAfter(r, f.closure(order[:count]))
		if found != nil {
			places = found
		}
		return found != nil
	})
	used := map[string]bool{}
	for i := range places {
		used[places[i].Node] = true
	}
	pods := slices.DeleteFunc(slices.Clone(order[:enough]), func(p int32) bool { return !used[f.q.candidates.Pods[p].Node] })
	if f.placesAfter(r, f.closure(pods)) == nil {
		return order[:enough]
	}
	return pods
}

// sortDearestFirst orders pods by their cost alone, the dearest first, of equal ones the last name first.
func (f *gangSearch) sortDearestFirst(pods []int32) {
	slices.SortFunc(pods, func(a, b int32) int {
		return cmp.Or(f.q.costAlone(b).Compare(f.q.costAlone(a)), strings.Compare(f.q.candidates.Pods[b].Name, f.q.candidates.Pods[a].Name))
	})
}

// closure returns pods with all that must leave with them, without those that the terms forbid beside them.
func (f *gangSearch) closure(pods []int32) []int32 {
	s := f.victims
	start := s.mark()
	for _, p := range pods {
		if m := s.mark(); !s.add(p) {
			s.undo(m)
		}
	}
	gone := slices.Clone(s.trail)
	s.undo(start)
	return gone
}

// maxSpared bounds the reprieves for one region, in placements of members that test whether all fit without a pod. The
// bound allows all tries for 512 victims of a gang of 512 members, which take a second and a half. Beyond the bound a
// plan may evict pods that could stay.
const maxSpared = 1 << 18

// reprieve spares pods without which the gang fits in a region, the dearest first, and offers the rest.
func (f *gangSearch) reprieve(r *region, pods []int32) {
	pods = slices.Clone(pods)
	f.sortDearestFirst(pods)
	gone := f.closure(pods)
	asks := f.reprievesLeft
	for at := 0; at < len(pods); {
		if asks--; asks < 0 {
			f.q.stats.Cut = true
			break
		}
		rest := slices.Delete(slices.Clone(pods), at, at+1)
		if less := f.closure(rest); len(less) == len(gone) || f.placesAfter(nil, less) != nil {
			pods, gone = rest, less
		} else {
			at++
		}
	}
	for at := 0; !f.exact && at < len(f.units(pods)); {
		if asks--; asks < 0 {
			f.q.stats.Cut = true
			break
		}
		unit := f.units(pods)[at].Pods
		rest := slices.DeleteFunc(slices.Clone(pods), func(p int32) bool { return slices.Contains(unit, int(p)) })
		if f.placesAfter(nil, f.closure(rest)) == nil {
			at++
		} else {
			pods, at = rest, 0
		}
	}
	s := f.victims
	m := s.mark()
	if s.addAll(pods) {
		f.offer(r, s.cost, s.units())
	}
	s.undo(m)
}

// units returns the units of some pods.
func (f *gangSearch) units(pods []int32) []Unit {
	m := f.victims.mark()
	defer f.victims.undo(m)
	f.victims.addAll(pods)
	return f.victims.units()
}

// complete adds to an answer its places and the leaving pods that must end. On the nodes of the places it waits for a
// set from which it can drop none, and prefers the first names.
func (f *gangSearch) complete(a *answer, places []vgpu.Assignment) *answer {
	q := f.q
	a.places = places
	for _, p := range f.pods(a.units) {
		f.evicted[p] = true
	}
	byNode := map[string][]int{}
	for i := range places {
		byNode[places[i].Node] = append(byNode[places[i].Node], i)
	}
	for i, n := range q.nodes {
		if members := byNode[n.Name()]; members != nil {
			a.waits = append(a.waits, f.waits(i, members, places)...)
		}
	}
	for _, p := range f.pods(a.units) {
		f.evicted[p] = false
	}
	slices.Sort(a.waits)
	return a
}

// waits returns the leaving pods of one node that must end.
func (f *gangSearch) waits(node int, members []int, places []vgpu.Assignment) (waits []int) {
	q := f.q
	leaving := slices.Clone(q.leaving(node))
	slices.SortFunc(leaving, func(a, b int32) int { return strings.Compare(q.candidates.Pods[b].Name, q.candidates.Pods[a].Name) })
	own := q.own()
	base := q.c.Nodes[node]
	if len(leaving) > 0 && base.Held() {
		base = base.Without(func(h *vgpu.Hold, held bool) bool { return held && own[h.UID] })
	}
	for k, p := range leaving {
		n := q.without(base, node, func(o int32) bool {
			return f.evicted[o] || slices.Contains(leaving[k+1:], o) || slices.Contains(waits, int(o))
		})
		if !f.takesPlaces(n, members, places) {
			waits = append(waits, int(p))
		}
	}
	return waits
}

// takesPlaces reports whether a node has room for its members on the devices of their places.
func (f *gangSearch) takesPlaces(n *vgpu.Node, members []int, places []vgpu.Assignment) bool {
	room := n.Room()
	n = n.Clone()
	for _, at := range members {
		r, a := &f.q.g.Members[at].Request, &places[at]
		lacks := lacksOf(room, r.Host)
		if !lacks.met() {
			return false
		}
		room = room.Minus(r.Host)
		if len(a.Containers) == 0 {
			continue
		}
		on := func(i int) bool {
			return slices.ContainsFunc(a.Containers, func(c vgpu.ContainerAssignment) bool { return slices.Contains(c.Devices, n.Devices()[i].ID) })
		}
		if f.q.cfg.Policy.Fit(n.Only(on), r) != nil || !usesAreFree(n, a, r) || n.Add(*a) != nil {
			return false
		}
	}
	return true
}

// usesAreFree reports whether what each container uses of its devices is free for a pod.
func usesAreFree(n *vgpu.Node, a *vgpu.Assignment, r *vgpu.Request) bool {
	for c := range a.Containers {
		for _, id := range a.Containers[c].Devices {
			if !a.Containers[c].Share.Use().Within(n.FreeFor(n.Index(id), r)) {
				return false
			}
		}
	}
	return true
}
