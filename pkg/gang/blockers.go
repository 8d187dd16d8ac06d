package gang

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// leave notes who stands in the way of places.
func (w *wait) leave(d *drained) {
	byNode := map[int][]*vgpu.Assignment{}
	var used []int
	for i := range d.places {
		if node, there := w.now.find(d.places[i].Node); there {
			if byNode[node] == nil {
				used = append(used, node)
			}
			byNode[node] = append(byNode[node], &d.places[i])
		}
	}
	slices.Sort(used)
	for _, node := range used {
		w.makeRoom(w.now.nodes[node], byNode[node], d)
	}
}

// makeRoom notes the pods that leave a node: of each device that has too little free for the members on it those that end
// first, then those with the fewest slots, until there is enough; then, where the host has too little, others in this order.
func (w *wait) makeRoom(n *vgpu.Node, places []*vgpu.Assignment, d *drained) {
	want := make([]vgpu.Use, len(n.Devices()))
	for _, a := range places {
		for _, i := range devicesOf(n, a) {
			if want[i] == (vgpu.Use{}) {
				want[i] = n.KeptFrom(i, w.asks[a.UID]) // which stays kept for others
			}
			want[i] = want[i].Plus(useOn(a, n.Devices()[i].ID))
		}
	}
	owners := w.owners(n)
	gone := map[vgpu.UID]bool{}
	for i := range want {
		free := n.Devices()[i].Capacity().Minus(n.Used(i))
		on := func(a *vgpu.Assignment) bool { return slices.Contains(devicesOf(n, a), i) }
		for _, a := range owners {
			if gone[a.UID] && on(a) {
				free = free.Plus(useOn(a, n.Devices()[i].ID))
			}
		}
		for _, a := range owners {
			if want[i].Within(free) {
				break
			}
			if gone[a.UID] || !on(a) {
				continue
			}
			gone[a.UID] = true
			free = free.Plus(useOn(a, n.Devices()[i].ID))
			d.add(a, n, w.end(a))
		}
	}
	w.makeHostRoom(n, places, owners, gone, d)
}

// makeHostRoom notes the pods that leave a node, beside those that are gone, until its host has room for the members.
func (w *wait) makeHostRoom(n *vgpu.Node, places, owners []*vgpu.Assignment, gone map[vgpu.UID]bool, d *drained) {
	want, room := vgpu.Room{}, n.Room()
	for _, a := range places {
		want = want.Plus(w.asks[a.UID].Host)
	}
	for _, a := range owners {
		if gone[a.UID] {
			room = room.Plus(w.host(a))
		}
	}
	for _, a := range owners {
		if want.Within(room) {
			return
		}
		if gives := w.host(a); !gone[a.UID] && gives != (vgpu.Room{}) {
			gone[a.UID] = true
			room = room.Plus(gives)
			d.add(a, n, w.end(a))
		}
	}
}

// owners returns the pods of others on a node, those that end first before the others, then by their slots and UID.
func (w *wait) owners(n *vgpu.Node) []*vgpu.Assignment {
	var list []*vgpu.Assignment
	n.Each(func(a *vgpu.Assignment) {
		if w.leaves(a) {
			list = append(list, a)
		}
	})
	slices.SortStableFunc(list, func(a, b *vgpu.Assignment) int {
		return cmp.Or(cmp.Compare(w.end(a), w.end(b)), cmp.Compare(slotsOf(a), slotsOf(b)))
	})
	return list
}

// slotsOf returns the slots that an assignment has of all its devices.
func slotsOf(a *vgpu.Assignment) (sum int64) {
	for c := range a.Containers {
		sum += int64(a.Containers[c].Share.Slots) * int64(len(a.Containers[c].Devices))
	}
	return sum
}

// useOn returns what an assignment takes of a device in its busiest phase.
func useOn(a *vgpu.Assignment, id vgpu.DeviceID) vgpu.Use {
	var p vgpu.Peak
	for c := range a.Containers {
		if k := &a.Containers[c]; slices.Contains(k.Devices, id) {
			p.Add(k.Kind, k.Share.Use())
		}
	}
	return p.Use()
}

func (d *drained) add(a *vgpu.Assignment, n *vgpu.Node, end int64) {
	d.blockers = append(d.blockers, Blocker{UID: a.UID, Pod: a.Pod})
	for _, i := range devicesOf(n, a) {
		d.slots += int64(useOn(a, n.Devices()[i].ID).Slots)
	}
	d.until = max(d.until, end)
}
