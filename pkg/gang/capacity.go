package gang

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// unlimited stands for any number of members: sums of it stay within 64 bits.
const unlimited = 1 << 20

// capOf returns how many members with a request the devices of a cell take at most, by their free shares. The number is
// exact for requests of one container without promises, since the capacity of a device or shape does not depend on the
// others. For several containers it is an upper bound.
func capOf(n *vgpu.Node, r *vgpu.Request, k *cell) int {
	switch len(r.Containers) {
	case 0:
		return unlimited
	case 1:
		return capOfContainer(n, r, 0, k)
	}
	slots, most := int64(0), unlimited
	for i := range n.Devices() {
		if k.has(i) {
			slots += int64(n.FreeFor(i, r).Slots)
		}
	}
	most = min(most, int(slots/int64(r.PeakSlots())))
	for c := range r.Containers {
		most = min(most, capOfContainer(n, r, c, k))
	}
	return most
}

// capOfContainer is capOf for one container of the request by itself.
func capOfContainer(n *vgpu.Node, r *vgpu.Request, c int, k *cell) int {
	devices := n.Devices()
	sum := 0
	var use vgpu.Use
	var share vgpu.Share
	legal := false
	for i := range devices {
		if i == 0 || n.Shape(i) != n.Shape(i-1) {
			share, legal = r.ShareOn(c, &devices[i])
			use = share.Use()
		}
		switch {
		case !legal || !k.has(i):
		case share.Devices == 1:
			sum += times(n.FreeFor(i, r), use)
		case firstOfShape(n, i):
			sum += wholeOf(n, r, i, k, use) / share.Devices
		}
	}
	return min(sum, unlimited)
}

// first reports whether device i is the first of its shape.
func firstOfShape(n *vgpu.Node, i int) bool {
	for j := range i {
		if n.Shape(j) == n.Shape(i) {
			return false
		}
	}
	return true
}

// wholeOf counts the devices of the cell with the shape of device i that have the use free.
func wholeOf(n *vgpu.Node, r *vgpu.Request, i int, k *cell, use vgpu.Use) int {
	count := 0
	for j := i; j < len(n.Devices()); j++ {
		if n.Shape(j) == n.Shape(i) && k.has(j) && use.Within(n.FreeFor(j, r)) {
			count++
		}
	}
	return count
}

// times returns how often a use fits into a free share.
func times(free, use vgpu.Use) int {
	if free.Slots < use.Slots {
		return 0
	}
	most := min(unlimited, int64(free.Slots/use.Slots))
	if use.Memory > 0 {
		most = min(most, int64(free.Memory/use.Memory))
	}
	if use.Contexts > 0 {
		most = min(most, int64(free.Contexts/use.Contexts))
	}
	return int(most)
}

// hostCapacity returns how many members of a class the host of a node takes by CPU, memory and admission.
func (snap *snapshot) hostCapacity(k *memberClass, node int) int {
	if snap.hostRule == hostsIgnored {
		return unlimited
	}
	most := timesRoom(snap.nodes[node].Room(), k.request.Host)
	if snap.hostRule == hostsIfEmpty && snap.barredBy(k.kind, node) != "" {
		return 0
	}
	if snap.hostRule == hostsAsTheyAre && snap.c.Admits != nil {
		most = min(most, max(0, snap.c.Admits(k.kind, node)))
	}
	return most
}

// barredBy returns why a node takes no member of a kind even when all its pods have ended.
func (snap *snapshot) barredBy(kind, node int) string {
	if snap.c.Bars == nil {
		return ""
	}
	return snap.c.Bars(kind, node)
}

// timesRoom returns how often a part of a host fits into its free CPU and memory.
func timesRoom(room, part vgpu.Room) int {
	most := int64(unlimited)
	if part.MilliCPU > 0 {
		most = min(most, max(0, room.MilliCPU)/part.MilliCPU)
	}
	if part.Memory > 0 {
		most = min(most, int64(max(0, room.Memory)/part.Memory))
	}
	return int(most)
}

// capacities returns how many members of a class each cell takes at most.
func (t *topology) capacities(k *memberClass) []int32 {
	snap := t.snapshot
	caps := make([]int32, len(t.cells))
	hosts, last := 0, int32(-1)
	for i := range t.cells {
		at := &t.cells[i]
		n := snap.nodes[at.node]
		if taken, of := n.Taken(); taken == of && len(k.request.Containers) > 0 {
			continue
		}
		if at.node != last {
			hosts, last = snap.hostCapacity(k, int(at.node)), at.node
		}
		if hosts == 0 {
			continue
		}
		most := min(hosts, capOf(n, k.request, at))
		if most > 0 && len(k.request.Containers) > 1 && placement.Fit(at.restrict(n), k.request) != nil {
			most = 0
		}
		caps[i] = int32(most)
	}
	return caps
}

// noteSharedHosts fills topology.hosts.
func (t *topology) noteSharedHosts() {
	if len(t.snapshot.members.classes) == 0 {
		return // nobody needs room
	}
	for first := 0; first < t.whole; {
		node, sum, end := t.cells[first].node, 0, first
		for ; end < t.whole && t.cells[end].node == node; end++ {
			sum += int(t.caps[0][end])
		}
		if end-first > 1 && sum > 0 {
			if most := t.snapshot.hostCapacity(&t.snapshot.members.classes[0], int(node)); most < sum {
				if t.hosts == nil {
					t.hosts = slices.Repeat([]int32{unlimited}, len(t.snapshot.nodes))
					t.left = make([]int32, len(t.hosts))
				}
				t.hosts[node] = int32(most)
			}
		}
		first = end
	}
}

// freeSlots returns the free slots of each cell for the class to which the fewest holds count.
func (t *topology) freeSlots() []int64 {
	snap := t.snapshot
	slots := make([]int64, len(t.cells))
	for i := range t.cells {
		n := snap.nodes[t.cells[i].node]
		classes := snap.members.classes
		if !n.Held() {
			classes = classes[:1] // classes differ in the holds that count only
		}
		for d := range n.Devices() {
			if !t.cells[i].has(d) {
				continue
			}
			free := vgpu.Slots(0)
			for k := range classes {
				free = max(free, n.FreeFor(d, classes[k].request).Slots)
			}
			slots[i] += int64(free)
		}
	}
	return slots
}
