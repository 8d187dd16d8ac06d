package vgpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Bounds of devices, far above any that exists: they keep sums of amounts within 64 bits.
const (
	maxSlots  Slots = 1 << 20
	maxMemory Bytes = 1 << 50
)

// Node is the devices of one node with their ledger. Concurrent writes are not safe.
type Node struct {
	name       string
	devices    []Device
	shapes     []int  // per device, equal for devices of one shape
	capacities []Use  // per device, its capacity while it is healthy
	links      []Link // len(devices)², Peer left empty

	used     []Use       // per device, by assignments only
	pods     []entry     // assignments by UID
	holds    []entry     // holds by UID
	heldUses [][]heldUse // per device, the holds that count: those of pods without an assignment here
	slots    Slots       // of all devices
	taken    Slots       // by assignments
	room     Room        // of the host, for further pods
	parent   *Cluster
}

// heldUse is what one hold keeps of one device.
type heldUse struct {
	uid      UID
	priority int32
	until    int64
	use      Use
}

// entry is one pod in the ledger. Priority matters for holds only.
type entry struct {
	Hold
	uses []deviceUse
}

// NewNode returns a node with an empty ledger. Devices are ordered by Index, then ID; the slice is copied.
func NewNode(name string, devices []Device) (*Node, error) {
	if name == "" {
		return nil, errors.New("make node: no name")
	}
	n := &Node{name: name, devices: slices.Clone(devices), used: make([]Use, len(devices)), heldUses: make([][]heldUse, len(devices))}
	slices.SortFunc(n.devices, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	index := map[DeviceID]int{}
	shapes := map[Shape]int{}
	for i := range n.devices {
		d := &n.devices[i]
		if err := d.validate(); err != nil {
			return nil, fmt.Errorf("make node %s: %w", name, err)
		}
		if _, double := index[d.ID]; double {
			return nil, fmt.Errorf("make node %s: device %s appears twice", name, d.ID)
		}
		index[d.ID] = i
		if _, seen := shapes[d.Shape()]; !seen {
			shapes[d.Shape()] = len(shapes)
		}
		n.shapes = append(n.shapes, shapes[d.Shape()])
		n.slots += d.Slots
	}
	n.connect(index)
	n.setCapacities()
	return n, nil
}

func (d *Device) validate() error {
	switch {
	case d.ID == "":
		return fmt.Errorf("device with index %d has no ID", d.Index)
	case d.Slots < 1 || d.Slots > maxSlots:
		return fmt.Errorf("device %s has %d slots", d.ID, d.Slots)
	case d.Memory < 0 || d.Memory > maxMemory:
		return fmt.Errorf("device %s has %d bytes", d.ID, d.Memory)
	case d.Contexts < 0:
		return fmt.Errorf("device %s has %d contexts", d.ID, d.Contexts)
	}
	return nil
}

// connect fills the matrix of links. A link that only one end names counts for both; of two, the closer counts.
func (n *Node) connect(index map[DeviceID]int) {
	n.links = make([]Link, len(n.devices)*len(n.devices))
	for i := range n.devices {
		for _, l := range n.devices[i].Links {
			j, known := index[l.Peer]
			if !known || i == j {
				continue
			}
			old := n.Link(i, j)
			if cmp.Or(cmp.Compare(l.Class, old.Class), cmp.Compare(l.Lanes, old.Lanes)) > 0 {
				link := Link{Class: l.Class, Lanes: l.Lanes}
				n.links[i*len(n.devices)+j], n.links[j*len(n.devices)+i] = link, link
			}
		}
	}
}

// Name is the node's name.
func (n *Node) Name() string { return n.name }

// Devices returns the devices by Index, then ID. Callers do not modify them.
func (n *Node) Devices() []Device { return n.devices }

// Shape numbers the shape of device i: devices of one node with the same number are of one Shape.
func (n *Node) Shape(i int) int { return n.shapes[i] }

// Link returns the path between devices i and j, without the Peer.
func (n *Node) Link(i, j int) Link { return n.links[i*len(n.devices)+j] }

// Used returns what the assignments take of device i. Holds do not count.
func (n *Node) Used(i int) Use { return n.used[i] }

// Taken returns the slots that assignments take, and the slots of all devices.
func (n *Node) Taken() (taken, of Slots) { return n.taken, n.slots }

// RoomBeside reports whether a node has enough slots for a request while other pods hold stray slots. It is not known on which devices the stray slots
// are, so they are subtracted from the slots of the whole node.
func (n *Node) RoomBeside(stray Slots, r *Request) bool {
	if stray == 0 {
		return true
	}
	free := -stray
	for i := range n.devices {
		free += n.FreeFor(i, r).Slots
	}
	return free >= r.PeakSlots()
}

// FreeFor returns what a pod may take of device i: nothing of an unhealthy one. For a healthy one it is the capacity
// less the assignments and less the holds that count for the pod. A hold counts for pods of the same or a lower
// priority, and never for its own pod. Neither does it count for a pod that ends by the time until which others use the
// devices. Beside an assignment of its own pod on this node it does not count. Amounts are never below zero.
func (n *Node) FreeFor(i int, r *Request) Use {
	free := n.capacities[i].Minus(n.used[i].Plus(n.KeptFrom(i, r)))
	if n.capacities[i].Contexts == UnlimitedContexts {
		free.Contexts = UnlimitedContexts
	}
	return free
}

// KeptFrom returns what holds keep of device i from a pod: those that count for it, see FreeFor.
func (n *Node) KeptFrom(i int, r *Request) Use {
	var kept Use
	for k := range n.heldUses[i] {
		if n.heldUses[i][k].countsFor(r) {
			kept = kept.Plus(n.heldUses[i][k].use)
		}
	}
	return kept
}

// setCapacities caches the capacities of healthy devices: FreeFor runs for every device of a cluster, and devices are
// large.
func (n *Node) setCapacities() {
	n.capacities = make([]Use, len(n.devices))
	for i := range n.devices {
		if n.devices[i].Healthy {
			n.capacities[i] = n.devices[i].Capacity()
		}
	}
}

// countsFor reports whether the pod must not use what the hold keeps.
func (k *heldUse) countsFor(r *Request) bool {
	passes := 0 < r.Ends && r.Ends <= k.until
	return k.priority >= r.Priority && k.uid != r.UID && !passes
}

// heldUsesOf lists what the holds keep of device i, by UID. The slice is new, since clones share the old one.
func (n *Node) heldUsesOf(i int) []heldUse {
	var list []heldUse
	for k := range n.holds {
		h := &n.holds[k]
		for _, u := range h.uses {
			if _, assigned := find(n.pods, h.UID); u.device == i && !assigned {
				list = append(list, heldUse{h.UID, h.Priority, h.Until, u.use})
			}
		}
	}
	return list
}

// Only returns a clone in which only the devices for which keep is true take new shares: the others are unhealthy
// there.
func (n *Node) Only(keep func(device int) bool) *Node {
	c := n.Clone()
	c.devices = slices.Clone(n.devices)
	for i := range c.devices {
		c.devices[i].Healthy = c.devices[i].Healthy && keep(i)
	}
	c.setCapacities()
	return c
}

// Healed returns a clone with all devices healthy, or the node itself where they all are.
func (n *Node) Healed() *Node {
	if !slices.ContainsFunc(n.devices, func(d Device) bool { return !d.Healthy }) {
		return n
	}
	c := n.Clone()
	c.devices = slices.Clone(n.devices)
	for i := range c.devices {
		c.devices[i].Healthy = true
	}
	c.setCapacities()
	return c
}

// Without returns a clone without the assignments and the holds for which leaves is true. leaves must not modify them.
func (n *Node) Without(leaves func(h *Hold, held bool) bool) *Node {
	c := *n
	c.parent, c.taken = nil, 0
	c.used, c.heldUses = make([]Use, len(n.devices)), make([][]heldUse, len(n.devices))
	c.pods, c.holds = remaining(n.pods, false, leaves), remaining(n.holds, true, leaves)
	for i := range c.pods {
		for _, u := range c.pods[i].uses {
			c.used[u.device] = c.used[u.device].Plus(u.use)
			c.taken += u.use.Slots
		}
	}
	for i := range c.heldUses {
		c.heldUses[i] = c.heldUsesOf(i)
	}
	return &c
}

// remaining returns the entries for which leaves is false, in a new slice.
func remaining(list []entry, held bool, leaves func(h *Hold, held bool) bool) []entry {
	var left []entry
	for i := range list {
		if !leaves(&list[i].Hold, held) {
			left = append(left, list[i])
		}
	}
	return left
}

// Clone returns a copy that belongs to no cluster. The two share the assignments, which are immutable.
func (n *Node) Clone() *Node {
	c := *n
	c.used, c.pods, c.holds = slices.Clone(n.used), slices.Clone(n.pods), slices.Clone(n.holds)
	c.heldUses = slices.Clone(n.heldUses)
	c.parent = nil
	return &c
}
