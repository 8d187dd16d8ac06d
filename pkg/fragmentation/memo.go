package fragmentation

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxDevices and maxStates bound a Memo: nodes of more devices are computed each time, and a full memo starts anew. Its
// 65,536 states take some 10 MB.
const (
	maxDevices = 8
	maxStates  = 1 << 16
)

// Memo remembers the loss of nodes by their state: nodes that are alike lose alike, and a scheduler that compares all
// nodes for each pod asks about the same states again and again. It is not safe for concurrent use.
type Memo struct {
	mix   *Mix
	kinds map[class]int32
	seen  map[state]Loss
	bound int // maxStates
}

// class is what does not change of a node whose devices are all of one shape.
type class struct {
	shape   vgpu.Shape
	devices int
}

// state is all that the loss of a node depends on. The devices are in order of what is free of them.
type state struct {
	class int32
	free  [maxDevices]int32
	room  vgpu.Room
}

// NewMemo returns an empty memo of losses to a mix.
func NewMemo(m *Mix) *Memo {
	return &Memo{mix: m, kinds: map[class]int32{}, seen: map[state]Loss{}, bound: maxStates}
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
	c := class{n.Devices()[0].Shape(), len(free)}
	id, known := m.kinds[c]
	if !known {
		id = int32(len(m.kinds))
		m.kinds[c] = id
	}
	s.class = id
	slices.Sort(s.free[:len(free)])
	return s, true
}
