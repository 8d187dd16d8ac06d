package vgpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Assignments returns the assignments by UID.
func (n *Node) Assignments() []Assignment {
	all := make([]Assignment, 0, len(n.pods))
	for i := range n.pods {
		all = append(all, n.pods[i].Assignment)
	}
	return all
}

// Each calls visit with each assignment, by UID. Visitors must not modify it.
func (n *Node) Each(visit func(*Assignment)) {
	for i := range n.pods {
		visit(&n.pods[i].Assignment)
	}
}

// Resident is a pod with an assignment on a device, as its neighbours see it.
type Resident struct {
	UID UID
	// Pod is "namespace/name".
	Pod string
	Tenancy
	// Compute is the limit of its containers that run together on the device, at most WholeGPU.
	Compute MilliGPU
}

// Residents appends the pods with an assignment on device i to a list, by UID. Holds do not count: their pods do not
// run.
func (n *Node) Residents(i int, list []Resident) []Resident {
	for k := range n.pods {
		e := &n.pods[k]
		for _, u := range e.uses {
			if u.device == i {
				list = append(list, Resident{e.UID, e.Pod, e.Tenancy, e.computeOn(n.devices[i].ID)})
			}
		}
	}
	return list
}

// PodUse is what an assignment takes of one device of its node.
type PodUse struct {
	UID    UID
	Device int
	Use    Use
}

// Uses appends what each assignment takes of each of its devices to a list, by UID, then by device.
func (n *Node) Uses(list []PodUse) []PodUse {
	for i := range n.pods {
		for _, u := range n.pods[i].uses {
			list = append(list, PodUse{n.pods[i].UID, u.device, u.use})
		}
	}
	return list
}

// computeOn returns the compute limit of a pod on a device: that of its containers that run together, or of the largest
// init container where that is more.
func (a *Assignment) computeOn(id DeviceID) MilliGPU {
	together, alone := MilliGPU(0), MilliGPU(0)
	for i := range a.Containers {
		c := &a.Containers[i]
		if !slices.Contains(c.Devices, id) {
			continue
		}
		if c.Kind == Init {
			alone = max(alone, c.Share.ComputeLimit)
		} else {
			together += c.Share.ComputeLimit
		}
	}
	return min(WholeGPU, max(together, alone))
}

// Held reports whether the node has any hold.
func (n *Node) Held() bool { return len(n.holds) > 0 }

// EachHold calls visit with each hold, by UID. Visitors must not modify it.
func (n *Node) EachHold(visit func(*Hold)) {
	for i := range n.holds {
		visit(&n.holds[i].Hold)
	}
}

// Holds returns the holds by UID.
func (n *Node) Holds() []Hold {
	all := make([]Hold, 0, len(n.holds))
	for i := range n.holds {
		all = append(all, n.holds[i].Hold)
	}
	return all
}

// Add books an assignment, and keeps its slices: the caller must not modify them later. An unhealthy device accepts it,
// since the pod runs there already. The error says what is wrong: another node, a second assignment of one pod, an
// unknown device, a malformed share, or more than a device has. Then Add books nothing. Holds do not matter.
func (n *Node) Add(a Assignment) error {
	e, err := n.entry(Hold{Assignment: a})
	if err != nil {
		return fmt.Errorf("add assignment of pod %s to node %s: %w", a.Pod, n.name, err)
	}
	if where := n.booked(a.UID, false); where != "" {
		return fmt.Errorf("add assignment of pod %s to node %s: it is assigned to node %s", a.Pod, n.name, where)
	}
	for _, u := range e.uses {
		d := &n.devices[u.device]
		if !n.used[u.device].Plus(u.use).Within(d.Capacity()) {
			return fmt.Errorf("add assignment of pod %s to node %s: device %s has %v, used are %v, asked for are %v",
				a.Pod, n.name, d.ID, d.Capacity(), n.used[u.device], u.use)
		}
	}
	n.insert(&e, false)
	return nil
}

// Grow makes room for so many assignments beside those that are there. Without it each Add may have to copy the list.
func (n *Node) Grow(assignments int) { n.pods = slices.Grow(n.pods, assignments) }

// Remove removes the assignment of a pod, and reports whether there was one.
func (n *Node) Remove(uid UID) bool { return n.removeEntry(uid, false) }

// Hold keeps devices for a pod, and keeps the slices of h. The devices may be in use, since other pods may still have
// to end there. The other reasons of Add are errors here too.
func (n *Node) Hold(h Hold) error {
	e, err := n.entry(h)
	if err != nil {
		return fmt.Errorf("hold room for pod %s on node %s: %w", h.Pod, n.name, err)
	}
	if where := n.booked(h.UID, true); where != "" {
		return fmt.Errorf("hold room for pod %s on node %s: node %s holds room for it", h.Pod, n.name, where)
	}
	n.insert(&e, true)
	return nil
}

// Release drops the hold of a pod, and reports whether there was one.
func (n *Node) Release(uid UID) bool { return n.removeEntry(uid, true) }

// devicePeak is what a pod takes of one device at most at one time.
type devicePeak struct {
	device int
	Peak
}

// entry checks the assignment by itself and adds up what it takes of each device.
func (n *Node) entry(h Hold) (entry, error) {
	switch {
	case h.UID == "":
		return entry{}, errors.New("no UID")
	case h.Node != n.name:
		return entry{}, fmt.Errorf("it names node %q", h.Node)
	case len(h.Containers) == 0:
		return entry{}, errors.New("no containers")
	}
	peaks := make([]devicePeak, 0, len(h.Containers[0].Devices))
	for i := range h.Containers {
		c := &h.Containers[i]
		if err := n.admit(c, h.Containers[:i]); err != nil {
			return entry{}, fmt.Errorf("container %s: %w", c.Name, err)
		}
		for _, id := range c.Devices {
			k := n.Index(id)
			at := slices.IndexFunc(peaks, func(p devicePeak) bool { return p.device == k })
			if at < 0 {
				at = len(peaks)
				peaks = append(peaks, devicePeak{device: k})
			}
			peaks[at].Add(c.Kind, c.Share.Use())
		}
	}
	e := entry{Hold: h, uses: make([]deviceUse, 0, len(peaks))}
	for i := range peaks {
		p := &peaks[i]
		if !p.Use().Within(n.devices[p.device].Capacity()) {
			return entry{}, fmt.Errorf("it takes %v of device %s, more than it has", p.Use(), n.devices[p.device].ID)
		}
		e.uses = append(e.uses, deviceUse{p.device, p.Use()})
	}
	slices.SortFunc(e.uses, func(a, b deviceUse) int { return cmp.Compare(a.device, b.device) })
	return e, nil
}

// admit checks one container of an assignment against its devices and the containers before it.
func (n *Node) admit(c *ContainerAssignment, before []ContainerAssignment) error {
	if c.Kind != App && c.Kind != Init && c.Kind != Sidecar {
		return fmt.Errorf("unknown kind %d", c.Kind)
	}
	for i := range before {
		if before[i].Name == c.Name {
			return errors.New("listed twice")
		}
	}
	if len(c.Devices) == 0 || len(c.Devices) != c.Share.Devices {
		return fmt.Errorf("%d devices for a share of %d", len(c.Devices), c.Share.Devices)
	}
	for i, id := range c.Devices {
		k := n.Index(id)
		if k < 0 {
			return fmt.Errorf("unknown device %s", id)
		}
		if i > 0 && c.Devices[i-1] >= id {
			return fmt.Errorf("devices not in order at %s", id)
		}
		if err := n.devices[k].Admits(c.Share); err != nil {
			return err
		}
	}
	return nil
}

// Index returns the position of a device in Devices, −1 when the node has no such device.
func (n *Node) Index(id DeviceID) int {
	return slices.IndexFunc(n.devices, func(d Device) bool { return d.ID == id })
}

// booked names the node of the cluster (or this one) that has an assignment, or a hold, of the pod.
func (n *Node) booked(uid UID, hold bool) string {
	if n.parent != nil {
		if at := n.parent.at(hold)[uid]; at != nil {
			return at.name
		}
		return ""
	}
	if _, ok := find(*n.list(hold), uid); ok {
		return n.name
	}
	return ""
}

func (n *Node) list(hold bool) *[]entry {
	if hold {
		return &n.holds
	}
	return &n.pods
}

// find finds a pod in a list that is ordered by UID.
func find(list []entry, uid UID) (int, bool) {
	return slices.BinarySearchFunc(list, uid, func(e entry, uid UID) int { return cmp.Compare(e.UID, uid) })
}

// removeEntry removes a pod from the assignments, or from the holds.
func (n *Node) removeEntry(uid UID, hold bool) bool {
	list := n.list(hold)
	i, ok := find(*list, uid)
	if !ok {
		return false
	}
	e := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	n.book(&e, hold, -1)
	return true
}

// insert adds a checked entry to the assignments, or to the holds.
func (n *Node) insert(e *entry, hold bool) {
	list := n.list(hold)
	i, _ := find(*list, e.UID)
	*list = slices.Insert(*list, i, *e)
	n.book(e, hold, +1)
}

// book updates the sums, the cluster's index and its journal for one new (+1) or removed (−1) entry.
func (n *Node) book(e *entry, hold bool, sign int) {
	if !hold {
		for _, u := range e.uses {
			n.used[u.device].Slots += Slots(sign) * u.use.Slots
			n.used[u.device].Memory += Bytes(sign) * u.use.Memory
			n.used[u.device].Contexts += sign * u.use.Contexts
			n.taken += Slots(sign) * u.use.Slots
		}
	}
	if i, held := find(n.holds, e.UID); hold {
		n.updateHeldUses(e)
	} else if held {
		n.updateHeldUses(&n.holds[i])
	}
	if n.parent != nil {
		n.parent.note(n, e, hold, sign)
	}
}

// updateHeldUses recomputes the held uses on the devices of one hold, after a change of it or of the assignment of its
// pod.
func (n *Node) updateHeldUses(hold *entry) {
	for _, u := range hold.uses {
		n.heldUses[u.device] = n.heldUsesOf(u.device)
	}
}
