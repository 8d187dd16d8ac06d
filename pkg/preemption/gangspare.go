package preemption

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// cheapest returns pods of a region that make room, from the cheapest to the dearest as far as is needed, of the nodes that the
// gang then goes to. It returns nil where not even all do.
func (f *field) cheapest(r *region) []int32 {
	order := slices.Clone(r.pods)
	f.dearest(order)
	slices.Reverse(order)
	places := f.room(r, f.closure(order))
	if places == nil {
		return nil
	}
	enough := sort.Search(len(order), func(count int) bool {
		found := f.room(r, f.closure(order[:count]))
		if found != nil {
			places = found
		}
		return found != nil
	})
	used := map[string]bool{}
	for i := range places {
		used[places[i].Node] = true
	}
	pods := slices.DeleteFunc(slices.Clone(order[:enough]), func(p int32) bool { return !used[f.q.who.Pods[p].Node] })
	if f.room(r, f.closure(pods)) == nil {
		return order[:enough]
	}
	return pods
}

// dearest orders pods: those that cost the most by themselves first, of equal ones the last by name.
func (f *field) dearest(pods []int32) {
	slices.SortFunc(pods, func(a, b int32) int {
		return cmp.Or(f.q.lone(b).Compare(f.q.lone(a)), strings.Compare(f.q.who.Pods[b].Name, f.q.who.Pods[a].Name))
	})
}

// closure returns pods with those that go with them, without those that may not go beside them.
func (f *field) closure(pods []int32) []int32 {
	s := f.picked
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

// maxSpared bounds the reprieves for one region, in members that are placed to see whether all fit without a pod: 512 victims
// for a gang of 512 are all asked about, which takes a second and a half. Beyond it some may go that could stay.
const maxSpared = 1 << 18

// reprieve spares what can stay of pods that make room in a region, the dearest first, and offers the rest.
func (f *field) reprieve(r *region, pods []int32) {
	pods = slices.Clone(pods)
	f.dearest(pods)
	gone := f.closure(pods)
	asks := f.asks
	for at := 0; at < len(pods); {
		if asks--; asks < 0 {
			f.q.stats.Cut = true
			break
		}
		rest := slices.Delete(slices.Clone(pods), at, at+1)
		if less := f.closure(rest); len(less) == len(gone) || f.room(nil, less) != nil {
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
		if f.room(nil, f.closure(rest)) == nil {
			at++
		} else {
			pods, at = rest, 0
		}
	}
	s := f.picked
	m := s.mark()
	if s.all(pods) {
		f.offer(r, s.cost, s.units())
	}
	s.undo(m)
}

// units returns those of some pods.
func (f *field) units(pods []int32) []Unit {
	m := f.picked.mark()
	defer f.picked.undo(m)
	f.picked.all(pods)
	return f.picked.units()
}

// settle completes an answer by its places and by who is waited for: of those that leave the nodes of the places, as few as any
// of them can be left out. Those with the last names are waited for only if the others are not enough.
func (f *field) settle(a *answer, places []vgpu.Assignment) *answer {
	q := f.q
	a.places = places
	for _, p := range f.pods(a.units) {
		f.gone[p] = true
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
		f.gone[p] = false
	}
	slices.Sort(a.waits)
	return a
}

// waits returns who is waited for on one node.
func (f *field) waits(node int, members []int, places []vgpu.Assignment) (waits []int) {
	q := f.q
	leaving := slices.Clone(q.leaving(node))
	slices.SortFunc(leaving, func(a, b int32) int { return strings.Compare(q.who.Pods[b].Name, q.who.Pods[a].Name) })
	own := q.own()
	base := q.c.Nodes[node]
	if len(leaving) > 0 && base.Held() {
		base = base.Without(func(h *vgpu.Hold, held bool) bool { return held && own[h.UID] })
	}
	for k, p := range leaving {
		n := q.without(base, node, func(o int32) bool {
			return f.gone[o] || slices.Contains(leaving[k+1:], o) || slices.Contains(waits, int(o))
		})
		if !f.books(n, members, places) {
			waits = append(waits, int(p))
		}
	}
	return waits
}

// books reports whether a node has room for the members that have a place on it, on their devices.
func (f *field) books(n *vgpu.Node, members []int, places []vgpu.Assignment) bool {
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
		if f.q.cfg.Policy.Fit(n.Only(on), r) != nil || !free(n, a, r) || n.Add(*a) != nil {
			return false
		}
	}
	return true
}

// free reports whether what each container takes of its devices is free for a pod.
func free(n *vgpu.Node, a *vgpu.Assignment, r *vgpu.Request) bool {
	for c := range a.Containers {
		for _, id := range a.Containers[c].Devices {
			if !a.Containers[c].Share.Use().Within(n.FreeFor(n.Index(id), r)) {
				return false
			}
		}
	}
	return true
}
