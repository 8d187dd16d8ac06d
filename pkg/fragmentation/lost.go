package fragmentation

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Loss is what the usual requests cannot use of a node, in milli-GPU × weight: divide by Weight for milli-GPU.
type Loss struct {
	// Lost is idle GPU that a request cannot use now: FGD's measure (§4).
	Lost int64
	// Starved is idle GPU that a request could use, but not with the CPU and memory of the host: these would run out
	// before such requests filled the GPU. Placements lose it later in most cases.
	Starved int64
}

// Lost returns what the usual requests cannot use of the node now; see Of. Divide by Weight for milli-GPU.
func (m *Mix) Lost(n *vgpu.Node) int64 {
	free := make([]vgpu.Use, len(n.Devices()))
	for i := range free {
		free[i] = n.FreeFor(i, &vgpu.Request{})
	}
	return m.Of(n, free, n.Room()).Lost
}

// Of returns the loss of a node from what is free of each device and of its host, whatever its ledger says. Of
// allocates no memory.
//
// A kind loses all idle GPU if it needs no GPU, or if the node cannot run it now. The reason may be CPU, memory,
// models, free devices, or slots that are legal on none of the devices. Any other kind loses what is idle on devices
// that have too little free for it. A kind that takes whole devices loses what is idle on devices that are not wholly
// free, or that have too few of their shape beside them. Memory of the devices does not count.
//
// Example: two devices of 10 slots with 4 and 10 free, and a host with 3 cores. The mix is 5 slots with 2 cores (weight
// 2) and 20 slots (weight 1). The first kind loses the 400 of the first device. Of the other 1000 it could use 750
// before CPU runs out: 250 are starved. The second kind cannot run, and loses 1400. Lost is 2·400 + 1400 = 2200,
// Starved is 2·250.
func (m *Mix) Of(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) Loss {
	var loss Loss
	idle := Idle(n, free)
	if idle == 0 {
		return loss
	}
	for k := range m.kinds {
		kind := &m.kinds[k]
		usable, size := int64(0), int64(0)
		if kind.Slots > 0 && kind.MilliCPU <= room.MilliCPU && kind.Memory <= room.Memory {
			usable, size = m.usable(k, n, free)
		}
		loss.Lost += kind.Weight * (idle - usable)
		loss.Starved += kind.Weight * (usable - kind.supplied(usable, size, room))
	}
	return loss
}

// ByDevice returns the part of each device in the Lost of Of, in milli-GPU × weight: the parts add up to it.
//
// Example: of the two devices in the example of Of, the first has 2·400 + 400, the second 1000.
func (m *Mix) ByDevice(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) []int64 {
	lost := make([]int64, len(free))
	for k := range m.kinds {
		kind := &m.kinds[k]
		runs := kind.Slots > 0 && kind.MilliCPU <= room.MilliCPU && kind.Memory <= room.Memory
		for i := range lost {
			if !runs || !m.uses(k, n, free, i) {
				lost[i] += kind.Weight * milli(free[i].Slots, n.Devices()[i].Slots)
			}
		}
	}
	return lost
}

// Idle returns the milli-GPU of the free slots, rounded down for each device.
func Idle(n *vgpu.Node, free []vgpu.Use) int64 {
	idle := int64(0)
	devices := n.Devices()
	for i := range devices {
		idle += milli(free[i].Slots, devices[i].Slots)
	}
	return idle
}

func milli(k, of vgpu.Slots) int64 {
	if of == vgpu.Slots(vgpu.WholeGPU) {
		return int64(k)
	}
	return int64(k) * int64(vgpu.WholeGPU) / int64(of)
}

// usable returns the milli-GPU on devices that kind k can use, 0 where they are too few to run it. The second result is
// the milli-GPU of one request, the largest on unlike devices.
func (m *Mix) usable(k int, n *vgpu.Node, free []vgpu.Use) (sum, size int64) {
	slots := m.kinds[k].Slots
	devices := n.Devices()
	for i := range devices {
		if m.uses(k, n, free, i) {
			sum += milli(free[i].Slots, devices[i].Slots)
			size = max(size, milli(slots, devices[i].Slots))
		}
	}
	return sum, size
}

// uses reports whether kind k can use what is free of device i.
func (m *Mix) uses(k int, n *vgpu.Node, free []vgpu.Use, i int) bool {
	slots, models, d := m.kinds[k].Slots, m.models[k], &n.Devices()[i]
	switch {
	case models != nil && !slices.Contains(models, d.Model):
		return false
	case slots <= d.Slots:
		return free[i].Slots >= slots
	}
	return slots%d.Slots == 0 && wholeLike(n, free, i) >= int64(slots/d.Slots)
}

// wholeLike counts the wholly free devices of the shape of device i, 0 where device i itself is not.
func wholeLike(n *vgpu.Node, free []vgpu.Use, i int) int64 {
	count := int64(0)
	all := n.Devices()[i].Slots
	if free[i].Slots < all {
		return 0
	}
	for j := range free {
		if n.Shape(j) == n.Shape(i) && free[j].Slots == all {
			count++
		}
	}
	return count
}

// maxRoom is more than any host has, in thousandths of a core and in MiB: a billion cores, an exbibyte. The bound keeps
// products with the size of a request, 128,000 thousandths of a GPU at most, within 64 bits.
const maxRoom = 1 << 40

// boundedRoom returns an amount of a host from which products stay within 64 bits: 0 for a host whose pods request more
// than it has.
func boundedRoom(room int64) int64 { return min(max(0, room), maxRoom) }

// supplied returns for how much of the usable milli-GPU the host's CPU and memory suffice, if requests of the kind and
// of a size in milli-GPU filled it.
func (k *Kind) supplied(usable, size int64, room vgpu.Room) int64 {
	if k.MilliCPU > 0 {
		usable = min(usable, boundedRoom(room.MilliCPU)*size/k.MilliCPU)
	}
	if k.Memory > 0 {
		usable = min(usable, boundedRoom(int64(room.Memory/vgpu.MiB))*size/max(1, int64(k.Memory/vgpu.MiB)))
	}
	return usable
}
