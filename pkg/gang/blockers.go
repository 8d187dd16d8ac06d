package gang

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// addBlockers adds the pods that must end before the places of a plan are free.
func (w *waitTimes) addBlockers(d *drainPlan) {
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
		w.addDeviceBlockers(w.now.nodes[node], byNode[node], d)
	}
}

// addDeviceBlockers adds the blockers on one node. On each device with too little room for its members it takes the
// pods that end first, then those with the fewest slots, until there is enough. Then addHostBlockers takes others in
// the same order where the host has too little.
func (w *waitTimes) addDeviceBlockers(n *vgpu.Node, places []*vgpu.Assignment, d *drainPlan) {
	want := make([]vgpu.Use, len(n.Devices()))
	for _, a := range places {
		for _, i := range devicesOf(n, a) {
			if want[i] == (vgpu.Use{}) {
				want[i] = n.KeptFrom(i, w.requests[a.UID]) // this part stays kept for others
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
			d.add(a, n, w.endOf(a))
		}
	}
	w.addHostBlockers(n, places, owners, gone, d)
}

// addHostBlockers adds blockers on a node, beside those in gone, until its host has enough CPU and memory for the
// members.
func (w *waitTimes) addHostBlockers(n *vgpu.Node, places, owners []*vgpu.Assignment, gone map[vgpu.UID]bool, d *drainPlan) {
	want, room := vgpu.Room{}, n.Room()
	for _, a := range places {
		want = want.Plus(w.requests[a.UID].Host)
	}
	for _, a := range owners {
		if gone[a.UID] {
			room = room.Plus(w.hostRoomOf(a))
		}
	}
	for _, a := range owners {
		if want.Within(room) {
			return
		}
		if gives := w.hostRoomOf(a); !gone[a.UID] && gives != (vgpu.Room{}) {
			gone[a.UID] = true
			room = room.Plus(gives)
			d.add(a, n, w.endOf(a))
		}
	}
}

// owners returns the pods of others on a node, those that end first before the others, then by their slots and UID.
func (w *waitTimes) owners(n *vgpu.Node) []*vgpu.Assignment {
	var list []*vgpu.Assignment
	n.Each(func(a *vgpu.Assignment) {
		if w.mayEnd(a) {
			list = append(list, a)
		}
	})
	slices.SortStableFunc(list, func(a, b *vgpu.Assignment) int {
		return cmp.Or(cmp.Compare(w.endOf(a), w.endOf(b)), cmp.Compare(slotsOf(a), slotsOf(b)))
	})
	return list
}

// slotsOf returns the slots of an assignment on all its devices.
func slotsOf(a *vgpu.Assignment) (sum int64) {
	for c := range a.Containers {
		sum += int64(a.Containers[c].Share.Slots) * int64(len(a.Containers[c].Devices))
	}
	return sum
}

// useOn returns what an assignment uses of a device in its busiest phase.
func useOn(a *vgpu.Assignment, id vgpu.DeviceID) vgpu.Use {
	var p vgpu.Peak
	for c := range a.Containers {
		if k := &a.Containers[c]; slices.Contains(k.Devices, id) {
			p.Add(k.Kind, k.Share.Use())
		}
	}
	return p.Use()
}

func (d *drainPlan) add(a *vgpu.Assignment, n *vgpu.Node, end int64) {
	d.blockers = append(d.blockers, Blocker{UID: a.UID, Pod: a.Pod})
	for _, i := range devicesOf(n, a) {
		d.slots += int64(useOn(a, n.Devices()[i].ID).Slots)
	}
	d.until = max(d.until, end)
}
