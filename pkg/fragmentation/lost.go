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
	// Unfilled is idle GPU that would be left after the usual requests filled the node; see Fills. Mix.Of does not compute it.
	Unfilled int64
}

// Lost returns what the usual requests cannot use of the node now; see Of. Divide by Weight for milli-GPU. Unseen requests do not count.
func (m *Mix) Lost(n *vgpu.Node) int64 {
	free := make([]vgpu.Use, len(n.Devices()))
	for i := range free {
		free[i] = n.FreeFor(i, &vgpu.Request{})
	}
	seen := *m
	seen.unseen = 0
	return seen.Of(n, free, n.Room()).Lost
}

// Of returns the loss of a node from what is free of each device and of its host, whatever its ledger says. Of
// allocates no memory.
//
// A kind loses all idle GPU if it needs no GPU, or if the node cannot run it now. The reason may be CPU, memory,
// models, free devices, or slots that are legal on none of the devices. Any other kind loses what is idle on devices
// that have too little free for it. A kind that takes whole devices loses what is idle on devices that are not wholly
// free, or that have too few of their shape beside them. A device has too little free where its slots or its memory are
// too few. Half of the unseen requests lose what is idle on touched devices, half all that is idle on a touched node.
//
// Example: two devices of 10 slots with 4 and 10 free, and a host with 3 cores. The mix is 5 slots with 2 cores (weight
// 2) and 20 slots (weight 1). The first kind loses the 400 of the first device. It could use 750 of the other 1000
// before CPU runs out: 250 are starved. The second kind cannot run, and loses 1400. Lost is 2·400 + 1400 = 2200,
// Starved is 2·250.
func (m *Mix) Of(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) Loss {
	var loss Loss
	idle := Idle(n, free)
	if idle == 0 {
		return loss
	}
	if a, ok := m.alike(n, free, room); ok {
		loss = a.loss(m, idle)
	} else {
		loss = m.lossOf(n, free, room, idle)
	}
	if m.unseen > 0 {
		loss.Lost += m.unseen * unseenLoss(n, free, idle) / 2
	}
	return loss
}

// lossOf is the part of Of that the kinds lose, on any node.
func (m *Mix) lossOf(n *vgpu.Node, free []vgpu.Use, room vgpu.Room, idle int64) (loss Loss) {
	memory := m.seesMemory(n, free)
	for k := range m.kinds {
		kind := &m.kinds[k]
		usable, size := int64(0), int64(0)
		if kind.Slots > 0 && kind.MilliCPU <= room.MilliCPU && kind.Memory <= room.Memory {
			usable, size = m.usable(k, n, free, memory)
		}
		loss.Lost += kind.Weight * (idle - usable)
		loss.Starved += kind.Weight * (usable - kind.supplied(usable, size, room))
	}
	return loss
}

// unseenLoss returns the idle milli-GPU of touched devices and, on a touched node, all idle milli-GPU beside.
func unseenLoss(n *vgpu.Node, free []vgpu.Use, idle int64) (lost int64) {
	devices := n.Devices()
	for i := range devices {
		if free[i].Slots < devices[i].Slots {
			lost += milli(free[i].Slots, devices[i].Slots)
		}
	}
	if touched(n, free) {
		lost += idle
	}
	return lost
}

// touched reports whether anything of the node's devices is taken.
func touched(n *vgpu.Node, free []vgpu.Use) bool {
	for i := range free {
		if free[i].Slots < n.Devices()[i].Slots {
			return true
		}
	}
	return false
}

// ByDevice returns the part of each device in the Lost of Of, in milli-GPU × weight: the parts add up to it.
//
// Example: of the two devices in the example of Of, the first has 2·400 + 400, the second 1000.
func (m *Mix) ByDevice(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) []int64 {
	lost, memory := make([]int64, len(free)), m.seesMemory(n, free)
	for k := range m.kinds {
		kind := &m.kinds[k]
		runs := kind.Slots > 0 && kind.MilliCPU <= room.MilliCPU && kind.Memory <= room.Memory
		for i := range lost {
			if !runs || !m.uses(k, n, free, i, memory) {
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
func (m *Mix) usable(k int, n *vgpu.Node, free []vgpu.Use, memory bool) (sum, size int64) {
	slots := m.kinds[k].Slots
	devices := n.Devices()
	for i := range devices {
		if m.uses(k, n, free, i, memory) {
			sum += milli(free[i].Slots, devices[i].Slots)
			size = max(size, milli(slots, devices[i].Slots))
		}
	}
	return sum, size
}

// uses reports whether kind k can use what is free of device i. memory says whether memory of devices makes a
// difference.
func (m *Mix) uses(k int, n *vgpu.Node, free []vgpu.Use, i int, memory bool) bool {
	slots, models, d := m.kinds[k].Slots, m.models[k], &n.Devices()[i]
	switch {
	case models != nil && !slices.Contains(models, d.Model):
		return false
	case slots <= d.Slots:
		return free[i].Slots >= slots && (!memory || free[i].Memory >= m.memoryOn(k, d))
	}
	return slots%d.Slots == 0 && wholeLike(n, free, i) >= int64(slots/d.Slots) && (!memory || d.Memory >= m.memoryOn(k, d))
}

// memoryOn returns the memory that kind k takes of each device like d, on which its slots are legal.
func (m *Mix) memoryOn(k int, d *vgpu.Device) vgpu.Bytes {
	kind := &m.kinds[k]
	devices := vgpu.Bytes(max(1, kind.Slots/d.Slots))
	switch {
	case kind.DeviceMemory > 0:
		return (kind.DeviceMemory-1)/devices + 1
	case kind.Slots >= d.Slots:
		return d.Memory
	}
	return vgpu.MemoryOf(d.Memory, kind.Slots, d.Slots)
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
	// Products compare without a division, which most hosts do not need.
	if by := boundedRoom(room.MilliCPU) * size; k.MilliCPU > 0 && by < usable*k.MilliCPU {
		usable = by / k.MilliCPU
	}
	if by, memory := boundedRoom(int64(room.Memory/vgpu.MiB))*size, max(1, int64(k.Memory/vgpu.MiB)); k.Memory > 0 && by < usable*memory {
		usable = by / memory
	}
	return usable
}
