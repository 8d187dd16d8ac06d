package gpushare

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Node is what the last scheduling cycle of a vGPU pod knew about one node. A Node is immutable: later cycles publish
// new ones.
type Node struct {
	Name string
	// Problem says why the node takes no vGPU pods, "" for none.
	Problem string
	// Ledger holds devices, assignments and holds. The ledger is nil where the node has no devices. Callers do not
	// modify it.
	Ledger *vgpu.Node
	// Stray counts the slots of pods without a valid assignment, and Strays says which and why.
	Stray  vgpu.Slots
	Strays []string
}

// Published returns the nodes by name as the scheduling cycles left them, for maps, explanations and metrics. Any
// goroutine may call it at any time, at no cost for the scheduling cycle. Each node is consistent in itself; a cycle
// that runs at the same time may have published some nodes and not yet others.
//
// A cycle of a vGPU pod publishes a node when it first sees a change: pods that left since the last such cycle are
// still there.
func (p *Plugin) Published() []Node {
	p.state.mu.RLock()
	defer p.state.mu.RUnlock()
	all := make([]Node, 0, len(p.state.nodes))
	for name, n := range p.state.nodes {
		if o := n.cached.Load(); o != nil {
			all = append(all, Node{Name: name, Problem: o.problem, Ledger: o.ledger, Stray: o.stray, Strays: o.strays})
		}
	}
	slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
