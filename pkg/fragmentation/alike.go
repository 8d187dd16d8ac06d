package fragmentation

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxSlotsAlike and maxModels bound what counts as alike. Nodes beyond take some ten times as long.
const (
	maxSlotsAlike = 128
	maxModels     = 64
)

// alike is what is free of a node of up to maxDevices devices of one shape, on which memory of devices makes no
// difference: nearly all nodes are like that.
type alike struct {
	// model is the bit of the devices' model, 0 for one that no kind names.
	model   uint64
	devices int
	slots   int32
	// free slots of the devices, the fewest first, and their sum.
	free [maxDevices]int32
	idle int32
	room vgpu.Room
}

// alike returns the node in this form, and whether it has it.
func (m *Mix) alike(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) (alike, bool) {
	var a alike
	if len(free) == 0 || len(free) > maxDevices || len(m.bits) > maxModels || m.seesMemory(n, free) {
		return a, false
	}
	d := &n.Devices()[0]
	if d.Slots > maxSlotsAlike {
		return a, false
	}
	a.devices, a.slots, a.room = len(free), int32(d.Slots), room
	if bit, named := m.bits[d.Model]; named {
		a.model = 1 << bit
	}
	for i := range free {
		if n.Shape(i) != n.Shape(0) || free[i].Slots < 0 {
			return a, false
		}
		a.free[i] = int32(free[i].Slots)
		a.idle += a.free[i]
	}
	slices.Sort(a.free[:len(free)])
	return a, true
}

// serves reports whether the model of the devices may serve kind k.
func (a *alike) serves(m *Mix, k int) bool { return m.allowed[k] == 0 || m.allowed[k]&a.model != 0 }

// loss is the part of Mix.Of that the kinds lose: the milli-GPU on devices with at least so many slots free are added up
// once for all kinds.
func (a *alike) loss(m *Mix, idle int64) (loss Loss) {
	var atLeast [maxSlotsAlike + 1]int64
	whole := int64(0)
	for _, k := range a.free[:a.devices] {
		atLeast[k] += milli(vgpu.Slots(k), vgpu.Slots(a.slots))
		if k == a.slots {
			whole++
		}
	}
	for k := a.slots; k > 0; k-- {
		atLeast[k-1] += atLeast[k]
	}
	for k := range m.kinds {
		kind := &m.kinds[k]
		usable := int64(0)
		if kind.Slots > 0 && kind.MilliCPU <= a.room.MilliCPU && kind.Memory <= a.room.Memory && a.serves(m, k) {
			if slots := int64(kind.Slots); slots <= int64(a.slots) {
				usable = atLeast[slots]
			} else if slots%int64(a.slots) == 0 && whole >= slots/int64(a.slots) {
				usable = atLeast[a.slots]
			}
		}
		loss.Lost += kind.Weight * (idle - usable)
		if usable > 0 {
			loss.Starved += kind.Weight * (usable - kind.supplied(usable, milli(kind.Slots, vgpu.Slots(a.slots)), a.room))
		}
	}
	return loss
}

// unfilled returns the mean idle milli-GPU after the orders of the fills.
func (a *alike) unfilled(f *Fills) int64 {
	sum, each := int64(0), a.each()
	asked := demandOfFill * a.idleMilli(&a.free)
	for _, order := range f.of {
		free := a.free
		if left := a.fill(f, &free, order, asked); each > 0 {
			sum += left * each
		} else {
			sum += a.idleMilli(&free)
		}
	}
	return sum / orders
}

// each returns the milli-GPU of a slot, 0 where that is no whole number.
func (a *alike) each() int64 {
	if int64(vgpu.WholeGPU)%int64(a.slots) != 0 {
		return 0
	}
	return int64(vgpu.WholeGPU) / int64(a.slots)
}

// idleMilli returns the milli-GPU of free slots, rounded down for each device.
func (a *alike) idleMilli(free *[maxDevices]int32) (sum int64) {
	for _, k := range free[:a.devices] {
		sum += milli(vgpu.Slots(k), vgpu.Slots(a.slots))
	}
	return sum
}

// fill takes the requests of an order from what is free, until they have asked for so many milli-GPU, and returns the
// slots that are left. It is filling.take for such nodes.
func (a *alike) fill(f *Fills, free *[maxDevices]int32, order []int32, asked int64) int64 {
	left, room, each := int64(a.idle), a.room, a.each()
	for _, k := range order {
		if asked <= 0 || left == 0 {
			break
		}
		wanted, kind := a.unseen(k), (*need)(nil)
		if k >= 0 {
			kind = &f.needs[k]
			wanted = kind.slots
		}
		switch {
		case wanted == 0:
			asked -= askedWithoutGPU
		case each > 0:
			asked -= wanted * each
		default:
			asked -= milli(vgpu.Slots(wanted), vgpu.Slots(a.slots))
		}
		switch {
		case kind != nil && (kind.cpu > room.MilliCPU || kind.memory > room.Memory):
			continue
		case wanted > 0 && (wanted > left || kind != nil && kind.allowed != 0 && kind.allowed&a.model == 0 || !a.book(free, int32(wanted))):
			continue
		}
		left -= wanted
		if kind != nil {
			room.MilliCPU -= kind.cpu
			room.Memory -= kind.memory
		}
	}
	return left
}

// unseen returns the slots of an unseen request.
func (a *alike) unseen(k int32) int64 {
	if k == untouchedNode {
		return int64(a.slots) * int64(a.devices)
	}
	return int64(a.slots)
}

// book takes slots of the device with the fewest free ones that has them, or whole devices, and reports whether they
// were there. It keeps the order of the devices.
func (a *alike) book(free *[maxDevices]int32, slots int32) bool {
	if slots > a.slots {
		return a.bookWhole(free, slots)
	}
	for i := range a.devices {
		if free[i] < slots {
			continue
		}
		rest := free[i] - slots
		for ; i > 0 && free[i-1] > rest; i-- {
			free[i] = free[i-1]
		}
		free[i] = rest
		return true
	}
	return false
}

// bookWhole takes whole devices, which are the last.
func (a *alike) bookWhole(free *[maxDevices]int32, slots int32) bool {
	count := int(slots / a.slots)
	if slots%a.slots != 0 || count > a.devices || free[a.devices-count] < a.slots {
		return false
	}
	copy(free[count:a.devices], free[:a.devices-count])
	clear(free[:count])
	return true
}
