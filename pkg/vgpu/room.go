package vgpu

import "fmt"

// Room is CPU and memory of a host: a pod's request, or the rest of a host. Room never stands for devices.
type Room struct {
	// MilliCPU is thousandths of a core.
	MilliCPU int64
	Memory   Bytes
}

// Within reports whether no amount is above o's. An amount of 0 or less always counts as within, as in the scheduler's
// own plugin. A host may be over its capacity in a resource that the pod does not request.
func (r Room) Within(o Room) bool {
	return (r.MilliCPU <= 0 || r.MilliCPU <= o.MilliCPU) && (r.Memory <= 0 || r.Memory <= o.Memory)
}

// Plus returns the sum. Amounts saturate, since the owners of pods may write any amounts.
func (r Room) Plus(o Room) Room { return Room{Sum(r.MilliCPU, o.MilliCPU), Sum(r.Memory, o.Memory)} }

// Minus returns the difference, in each amount at least zero.
func (r Room) Minus(o Room) Room {
	return Room{max(0, Difference(r.MilliCPU, o.MilliCPU)), max(0, Difference(r.Memory, o.Memory))}
}

// Less returns the difference, below zero where o is more: what a host lacks whose pods request more than it has.
// Amounts saturate.
func (r Room) Less(o Room) Room {
	return Room{Difference(r.MilliCPU, o.MilliCPU), Difference(r.Memory, o.Memory)}
}

// String writes the amounts for users: "1500m 4Gi".
func (r Room) String() string { return fmt.Sprintf("%dm %v", r.MilliCPU, r.Memory) }

// Room returns what further pods may use of the host, as SetRoom set it. The room is zero by default, and below zero
// where the host's pods request more than it has.
func (n *Node) Room() Room { return n.room }

// SetRoom sets what further pods may use of the host. The ledger counts devices only, so that the caller that books a
// pod must also set this. WhatIf does not undo it.
func (n *Node) SetRoom(r Room) { n.room = r }
