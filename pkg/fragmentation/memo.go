package fragmentation

import (
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
	mix    *Mix
	shapes map[vgpu.Shape]int32
	seen   map[state]Loss
	bound  int // maxStates
}

// state determines the loss of a node whose devices have one shape. free is sorted; a missing device counts like one
// with nothing free.
type state struct {
	shape int32
	free  [maxDevices]int32
	room  vgpu.Room
}

// NewMemo returns an empty memo of losses to a mix.
func NewMemo(m *Mix) *Memo {
	return &Memo{mix: m, shapes: map[vgpu.Shape]int32{}, seen: map[state]Loss{}, bound: maxStates}
}

// Of is Mix.Of.
func (m *Memo) Of(n *vgpu.Node, free []vgpu.Use, room vgpu.Room) Loss {
	s, ok := m.state(n, free, room)
	if !ok {
		return m.mix.Of(n, free, room)
	}
	loss, known := m.seen[s]
	if !known {
		if len(m.seen) >= m.bound {
			clear(m.seen)
		}
		loss = m.mix.Of(n, free, room)
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
		s.free[i] = int32(free[i].Slots)
	}
	shape := n.Devices()[0].Shape()
	id, known := m.shapes[shape]
	if !known {
		id = int32(len(m.shapes))
		m.shapes[shape] = id
	}
	s.shape = id
	slices.Sort(s.free[:])
	return s, true
}
