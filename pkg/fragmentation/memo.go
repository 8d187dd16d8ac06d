package fragmentation

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxDevices and maxStates bound a Memo: it does not cache nodes of more devices, and clears itself when it is full.
// Its 65,536 states take some 10 MB. Larger bounds compute less often and take more memory.
const (
	maxDevices = 8
	maxStates  = 1 << 16
)

// Memo caches the loss of nodes by their state. Like nodes have the same loss, and a scheduler that compares all nodes
// for each pod needs the same states repeatedly. Concurrent use is not safe.
type Memo struct {
	measure Measure
	shapes  map[vgpu.Shape]int32
	seen    map[state]Loss
	bound   int // maxStates
}

// Measure computes the loss of a node: a Mix or Fills.
type Measure interface {
	Of(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) Loss
	// Mix returns the requests that lose.
	Mix() *Mix
}

// state determines the loss of a node whose devices have one shape. free is sorted; a missing device counts like one
// with nothing free.
type state struct {
	shape int32
	free  [maxDevices]freeOf
	room  vgpu.Room
}

// freeOf is what is free of a device: the slots, and where it makes a difference the memory.
type freeOf struct {
	slots  int32
	memory vgpu.Bytes
}

// NewMemo returns an empty memo of losses by a measure.
func NewMemo(m Measure) *Memo {
	return &Memo{measure: m, shapes: map[vgpu.Shape]int32{}, seen: map[state]Loss{}, bound: maxStates}
}

// Of is Mix.Of.
func (m *Memo) Of(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) Loss {
	s, ok := m.state(n, free, room)
	if !ok {
		return m.measure.Of(n, free, room)
	}
	loss, known := m.seen[s]
	if !known {
		if len(m.seen) >= m.bound {
			clear(m.seen)
		}
		loss = m.measure.Of(n, free, room)
		m.seen[s] = loss
	}
	return loss
}

// state returns the key of a node, and whether it has one.
func (m *Memo) state(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) (state, bool) {
	s := state{room: room}
	if len(free) == 0 || len(free) > maxDevices {
		return s, false
	}
	for i := range free {
		if n.Shape(i) != n.Shape(0) {
			return s, false
		}
		s.free[i].slots = int32(free[i].Slots)
	}
	if m.measure.Mix().seesMemory(n, free) {
		for i := range free {
			s.free[i].memory = free[i].Memory
		}
	}
	shape := n.Devices()[0].Shape()
	id, known := m.shapes[shape]
	if !known {
		id = int32(len(m.shapes))
		m.shapes[shape] = id
	}
	s.shape = id
	slices.SortFunc(s.free[:], func(a, b freeOf) int { return cmp.Or(cmp.Compare(a.slots, b.slots), cmp.Compare(a.memory, b.memory)) })
	return s, true
}

// seesMemory reports whether memory of the devices makes a difference: to kinds that state memory, and where the memory
// of a device is scarcer than its slots.
func (m *Mix) seesMemory(n *vgpu.Node, free []vgpu.Use) bool {
	if m.blind || m.stated {
		return m.stated && !m.blind
	}
	for i := range free {
		d := &n.Devices()[i]
		if free[i].Memory < vgpu.MemoryOf(d.Memory, max(0, free[i].Slots), d.Slots) {
			return true
		}
	}
	return false
}
