package gang

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// putLinked places up to `most` members of a class that take whole devices as a does, on devices of one shape in a
// cell. The members get the set of devices with the best links. In the set each member gets the best links inside, and
// members that are neighbours in rank get the best links between them.
func (x *attempt) putLinked(k int, i int32, a *vgpu.Assignment, most int) []vgpu.Assignment {
	at := &x.topology.cells[i]
	n := x.node(at.node)
	r := x.request(k)
	share := a.Containers[0].Share
	shape := n.Shape(n.Index(a.Containers[0].Devices[0]))
	var free []int
	for d := range n.Devices() {
		if n.Shape(d) == shape && at.has(d) && share.Use().Within(n.FreeFor(d, r)) {
			free = append(free, d)
		}
	}
	most = min(most, len(free)/share.Devices)
	set := free[:most*share.Devices]
	if len(set) < len(free) && len(set) > 1 {
		set = make([]int, len(set))
		placement.BestSet(n, free, len(set), set)
	}
	groups := split(n, set, share.Devices)
	places := make([]vgpu.Assignment, 0, most)
	for _, group := range groups {
		place := x.withDevices(k, a, n, group)
		x.book(k, at.node, place)
		places = append(places, place)
	}
	return places
}

// withDevices returns the assignment of the next member of a class on a group of whole devices, with the shares of
// another assignment. No other pod is on these devices, so that no promise can break.
func (x *attempt) withDevices(k int, a *vgpu.Assignment, n *vgpu.Node, group []int) vgpu.Assignment {
	place := *a
	r := x.request(k)
	place.UID, place.Pod = r.UID, r.Pod
	place.Containers = slices.Clone(a.Containers)
	ids := make([]vgpu.DeviceID, 0, len(group))
	for _, d := range group {
		ids = append(ids, n.Devices()[d].ID)
	}
	slices.Sort(ids)
	place.Containers[0].Devices = ids
	return place
}

// maxSplit is the number of devices up to which the search compares all ways to split them. A larger set gets a greedy
// split. The number of ways grows fast: 16 devices in pairs have two million.
const maxSplit = 8

// split divides a set of devices into groups of m with the best links inside. Groups that follow each other have good
// links.
func split(n *vgpu.Node, set []int, m int) [][]int {
	var groups [][]int
	switch {
	case m == 1:
		return path(n, set)
	case m == len(set):
		return [][]int{set}
	case len(set) <= maxSplit:
		groups, _ = bestSplit(n, set, m)
	default:
		groups = greedySplit(n, set, m)
	}
	slices.SortFunc(groups, slices.Compare)
	return groups
}

// inside adds up the quality of the links among devices.
func inside(n *vgpu.Node, devices []int) int64 {
	sum := int64(0)
	for a := range devices {
		for b := range a {
			sum += placement.Quality(n.Link(devices[b], devices[a]))
		}
	}
	return sum
}

// bestSplit compares all ways to divide a set into groups of m, in which each group starts with the first device left.
func bestSplit(n *vgpu.Node, set []int, m int) (best [][]int, most int64) {
	if len(set) == 0 {
		return nil, 0
	}
	most = -1
	group := []int{set[0]}
	var choose func(from int)
	choose = func(from int) {
		if len(group) == m {
			rest := slices.DeleteFunc(slices.Clone(set), func(d int) bool { return slices.Contains(group, d) })
			others, sum := bestSplit(n, rest, m)
			if sum += inside(n, group); sum > most {
				best, most = append([][]int{slices.Clone(group)}, others...), sum
			}
			return
		}
		for at := from; at < len(set); at++ {
			group = append(group, set[at])
			choose(at + 1)
			group = group[:len(group)-1]
		}
	}
	choose(1)
	return best, most
}

// greedySplit takes the group with the best links, then the best of the rest.
func greedySplit(n *vgpu.Node, set []int, m int) [][]int {
	var groups [][]int
	left := slices.Clone(set)
	for len(left) > m {
		group := make([]int, m)
		placement.BestSet(n, left, m, group)
		groups = append(groups, group)
		left = slices.DeleteFunc(left, func(d int) bool { return slices.Contains(group, d) })
	}
	return append(groups, left)
}

// path orders single devices so that the links between neighbours are good. For up to maxSplit devices it returns the
// best order. Beyond that it starts with the first device and appends the best linked one each time. If all links are
// alike, it returns the order by index.
func path(n *vgpu.Node, set []int) [][]int {
	order := set
	switch {
	case uniform(n, set):
	case len(set) <= maxSplit:
		order = bestPath(n, set)
	default:
		order = greedyPath(n, set)
	}
	groups := make([][]int, 0, len(set))
	for at := range order {
		groups = append(groups, order[at:at+1])
	}
	return groups
}

func uniform(n *vgpu.Node, set []int) bool {
	for a := range set {
		for b := range a {
			if n.Link(set[b], set[a]) != n.Link(set[0], set[1]) {
				return false
			}
		}
	}
	return true
}

// bestPath finds the order with the highest sum of the qualities between neighbours; of equal orders it takes the first
// by index. It computes the best path from each device through each set of devices that are left (Held and Karp 1962).
func bestPath(n *vgpu.Node, set []int) []int {
	m := len(set)
	best, next := make([]int64, m<<m), make([]int, m<<m)
	for visited := 1<<m - 1; visited > 0; visited-- {
		for at := range m {
			if visited&(1<<at) == 0 {
				continue
			}
			here := visited*m + at
			best[here], next[here] = -1, -1
			if visited == 1<<m-1 {
				best[here] = 0
			}
			for to := range m {
				if visited&(1<<to) != 0 {
					continue
				}
				if sum := placement.Quality(n.Link(set[at], set[to])) + best[(visited|1<<to)*m+to]; sum > best[here] {
					best[here], next[here] = sum, to
				}
			}
		}
	}
	start := 0
	for at := range m {
		if best[(1<<at)*m+at] > best[(1<<start)*m+start] {
			start = at
		}
	}
	order, visited := []int{set[start]}, 1<<start
	for at := next[visited*m+start]; at >= 0; {
		order = append(order, set[at])
		visited |= 1 << at
		at = next[visited*m+at]
	}
	return order
}

// greedyPath starts with the first device and appends the one with the best link to the last each time.
func greedyPath(n *vgpu.Node, set []int) []int {
	order, left := []int{set[0]}, slices.Clone(set[1:])
	for len(left) > 0 {
		last, best := order[len(order)-1], 0
		for at := range left {
			if placement.Quality(n.Link(last, left[at])) > placement.Quality(n.Link(last, left[best])) {
				best = at
			}
		}
		order = append(order, left[best])
		left = slices.Delete(left, best, best+1)
	}
	return order
}
