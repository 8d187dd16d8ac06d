package vgpu

import (
	"cmp"
	"fmt"
	"slices"
)

// Cluster is the nodes of one snapshot, with an undo journal. Like Node it is for one goroutine.
//
// A pod has one assignment and one hold in a cluster, which may be on different nodes.
type Cluster struct {
	nodes    []*Node
	byName   map[string]*Node
	assigned map[UID]*Node
	held     map[UID]*Node
	journal  []change
	depth    int
}

// change is one new or removed entry of a node's ledger.
type change struct {
	node  *Node
	entry entry
	hold  bool
	sign  int
}

// NewCluster makes a cluster of nodes, and owns them: a node belongs to one cluster.
func NewCluster(nodes ...*Node) (*Cluster, error) {
	pods, count := 0, 0
	for _, n := range nodes {
		pods, count = pods+len(n.pods), count+len(n.devices)
	}
	c := &Cluster{
		nodes:    slices.Clone(nodes),
		byName:   make(map[string]*Node, len(nodes)),
		assigned: make(map[UID]*Node, pods),
		held:     map[UID]*Node{},
	}
	slices.SortFunc(c.nodes, func(a, b *Node) int { return cmp.Compare(a.name, b.name) })
	devices := make(map[DeviceID]string, count)
	for _, n := range c.nodes {
		if c.byName[n.name] != nil {
			return nil, fmt.Errorf("make cluster: node %s appears twice", n.name)
		}
		if n.parent != nil {
			return nil, fmt.Errorf("make cluster: node %s belongs to another cluster", n.name)
		}
		for i := range n.devices {
			if other, double := devices[n.devices[i].ID]; double {
				return nil, fmt.Errorf("make cluster: device %s is on node %s and on %s", n.devices[i].ID, other, n.name)
			}
			devices[n.devices[i].ID] = n.name
		}
		if err := c.index(n); err != nil {
			return nil, fmt.Errorf("make cluster: %w", err)
		}
		c.byName[n.name] = n
	}
	for _, n := range c.nodes {
		n.parent = c
	}
	return c, nil
}

// index adds the ledger of a node to the index.
func (c *Cluster) index(n *Node) error {
	for _, hold := range []bool{false, true} {
		for _, e := range *n.list(hold) {
			if other := c.at(hold)[e.UID]; other != nil {
				return fmt.Errorf("pod %s is on node %s and on %s", e.Pod, other.name, n.name)
			}
			c.at(hold)[e.UID] = n
		}
	}
	return nil
}

// at returns the index of the assignments, or of the holds.
func (c *Cluster) at(hold bool) map[UID]*Node {
	if hold {
		return c.held
	}
	return c.assigned
}

// note updates the index and the journal with a change of a node's ledger.
func (c *Cluster) note(n *Node, e *entry, hold bool, sign int) {
	if sign > 0 {
		c.at(hold)[e.UID] = n
	} else {
		delete(c.at(hold), e.UID)
	}
	if c.depth > 0 {
		c.journal = append(c.journal, change{n, *e, hold, sign})
	}
}

// Node returns a node by name, nil when there is none.
func (c *Cluster) Node(name string) *Node { return c.byName[name] }

// Nodes returns the nodes by name. Callers must not modify the slice.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Add books an assignment on the node that it names; see Node.Add.
func (c *Cluster) Add(a Assignment) error {
	n := c.byName[a.Node]
	if n == nil {
		return fmt.Errorf("add assignment of pod %s: unknown node %q", a.Pod, a.Node)
	}
	return n.Add(a)
}

// Remove removes the assignment of a pod, and reports whether there was one.
func (c *Cluster) Remove(uid UID) bool {
	n := c.assigned[uid]
	return n != nil && n.Remove(uid)
}

// Hold keeps devices for a pod on the node that h names; see Node.Hold.
func (c *Cluster) Hold(h Hold) error {
	n := c.byName[h.Node]
	if n == nil {
		return fmt.Errorf("hold room for pod %s: unknown node %q", h.Pod, h.Node)
	}
	return n.Hold(h)
}

// Release drops the hold of a pod, and reports whether there was one.
func (c *Cluster) Release(uid UID) bool {
	n := c.held[uid]
	return n != nil && n.Release(uid)
}

// WhatIf runs fn and then undoes all changes of fn to the ledgers, also when fn panics. Calls may nest.
func (c *Cluster) WhatIf(fn func()) {
	mark := len(c.journal)
	c.depth++
	defer func() {
		c.undo(mark)
		c.depth--
	}()
	fn()
}

// undo reverts the changes after mark, the last one first. The journal does not record the reverts.
func (c *Cluster) undo(mark int) {
	depth := c.depth
	c.depth = 0
	for i := len(c.journal) - 1; i >= mark; i-- {
		ch := &c.journal[i]
		if ch.sign > 0 {
			ch.node.removeEntry(ch.entry.UID, ch.hold)
		} else {
			ch.node.insert(&ch.entry, ch.hold)
		}
	}
	c.journal = slices.Delete(c.journal, mark, len(c.journal))
	c.depth = depth
}
