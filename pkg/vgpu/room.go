package vgpu

import "fmt"

// Room is CPU and memory of a host: what a pod asks for beside devices, and what a node has left.
type Room struct {
	// MilliCPU is thousandths of a core.
	MilliCPU int64
	Memory   Bytes
}

// Within reports whether no amount is above o's. What is not asked for is not compared, as the scheduler's own plugin does: a host
// may owe what nobody wants of it.
func (r Room) Within(o Room) bool {
	return (r.MilliCPU <= 0 || r.MilliCPU <= o.MilliCPU) && (r.Memory <= 0 || r.Memory <= o.Memory)
}

// Plus returns the sum. Amounts saturate: what pods ask for is what their owners wrote, whatever it adds up to.
func (r Room) Plus(o Room) Room { return Room{Sum(r.MilliCPU, o.MilliCPU), Sum(r.Memory, o.Memory)} }

// Minus returns the difference, in each amount at least zero.
func (r Room) Minus(o Room) Room {
	return Room{max(0, Difference(r.MilliCPU, o.MilliCPU)), max(0, Difference(r.Memory, o.Memory))}
}

// Less returns the difference, below zero where o is more: what a host lacks whose pods ask for more than it has. Amounts saturate.
func (r Room) Less(o Room) Room {
	return Room{Difference(r.MilliCPU, o.MilliCPU), Difference(r.Memory, o.Memory)}
}

// String writes the amounts for people: "1500m 4Gi".
func (r Room) String() string { return fmt.Sprintf("%dm %v", r.MilliCPU, r.Memory) }

// Room returns what further pods may take of the host, as its owner noted it: zero where nobody did, and below zero where its pods
// ask for more than it has.
func (n *Node) Room() Room { return n.room }

// SetRoom notes what further pods may take of the host. The ledger counts devices only, so whoever books a pod tells the
// node what is left of CPU and memory. WhatIf does not undo it.
func (n *Node) SetRoom(r Room) { n.room = r }
