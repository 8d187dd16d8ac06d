package gang

import (
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// enough stands for any number of members: sums of it stay within 64 bits.
const enough = 1 << 20

// capOf returns how many members with a request the devices of a cell take at most, by what is free of them. It is exact
// for requests of one container without promises, since a device or a shape takes so many whatever the others do; for
// several containers it is a bound.
func capOf(n *vgpu.Node, r *vgpu.Request, k *cell) int {
	switch len(r.Containers) {
	case 0:
		return enough
	case 1:
		return capOfContainer(n, r, 0, k)
	}
	slots, most := int64(0), enough
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
		case first(n, i):
			sum += wholeOf(n, r, i, k, use) / share.Devices
		}
	}
	return min(sum, enough)
}

// first reports whether device i is the first of its shape.
func first(n *vgpu.Node, i int) bool {
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

// times returns how often a use fits into what is free.
func times(free, use vgpu.Use) int {
	if free.Slots < use.Slots {
		return 0
	}
	most := min(enough, int64(free.Slots/use.Slots))
	if use.Memory > 0 {
		most = min(most, int64(free.Memory/use.Memory))
	}
	if use.Contexts > 0 {
		most = min(most, int64(free.Contexts/use.Contexts))
	}
	return int(most)
}

// hosts returns how many members of a class the host of a node takes by CPU, memory and the nodes that admit them.
func (f *ground) hosts(k *class, node int) int {
	if f.hosting == notAtAll {
		return enough
	}
	most := timesRoom(f.nodes[node].Room(), k.request.Host)
	if f.hosting == ifEmpty && f.bar(k.kind, node) != "" {
		return 0
	}
	if f.hosting == asTheyAre && f.c.Admits != nil {
		most = min(most, max(0, f.c.Admits(k.kind, node)))
	}
	return most
}

// bar returns why a node takes no member of a kind, whoever ends.
func (f *ground) bar(kind, node int) string {
	if f.c.Bars == nil {
		return ""
	}
	return f.c.Bars(kind, node)
}

// timesRoom returns how often a part of a host fits into the room that is left.
func timesRoom(room, part vgpu.Room) int {
	most := int64(enough)
	if part.MilliCPU > 0 {
		most = min(most, max(0, room.MilliCPU)/part.MilliCPU)
	}
	if part.Memory > 0 {
		most = min(most, int64(max(0, room.Memory)/part.Memory))
	}
	return int(most)
}

// measure returns how many members of a class each cell takes at most.
func (t *chart) measure(k *class) []int32 {
	f := t.ground
	caps := make([]int32, len(t.cells))
	hosts, last := 0, int32(-1)
	for i := range t.cells {
		at := &t.cells[i]
		n := f.nodes[at.node]
		if taken, of := n.Taken(); taken == of && len(k.request.Containers) > 0 {
			continue
		}
		if at.node != last {
			hosts, last = f.hosts(k, int(at.node)), at.node
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

// room returns the free slots of each cell for the members to which the fewest holds count.
func (t *chart) room() []int64 {
	f := t.ground
	slots := make([]int64, len(t.cells))
	for i := range t.cells {
		n := f.nodes[t.cells[i].node]
		classes := f.crew.classes
		if !n.Held() {
			classes = classes[:1] // holds are all that classes see in different ways
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
