package bound

import (
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bound says how much of all GPUs can be allocated, in percent.
type Bound struct {
	// Most is what no policy exceeds.
	Most float64
	// Feasible is what a plan reaches that knows all pods in advance. The best plan lies between Feasible and Most.
	Feasible float64
	// Gap is Most less Feasible.
	Gap float64
	// Cut says that a limit ended a search early. Most still holds, but a longer search could lower it.
	Cut bool
}

// Resources of a host and its devices by which a pattern is bounded beside the slots.
const (
	cpu = iota
	hostMemory
	deviceMemory
	resources
)

// amounts are parts of what a node has: 1 is all of it.
type amounts [resources]float64

// item is what a pod of a kind takes of a node.
type item struct {
	kind int
	// width is the number of devices. A pod of one device takes slots of it, a wider one all slots.
	width, slots int
	// value in thousandths of a GPU.
	value float64
	// needs are parts of the node, perDevice the part of one device's memory.
	needs     amounts
	perDevice float64
}

// nodeType is nodes that are alike.
type nodeType struct {
	count, devices, slots int
	items                 []item
	// prices of the resources at which the last pricing ended, where the next one begins.
	prices amounts
}

// fill is a problem: nodes by type, pods by kind.
type fill struct {
	types  []nodeType
	demand []int
	// capacity is that of all devices, in thousandths of a GPU.
	capacity float64
	limits   limits
}

// Fill returns the bound of a cluster of empty nodes for those pods. Nodes have the Room that their pods may use. Each
// node has devices of one shape, and each pod has at most one container with slots; anything else is an error. Promises
// to neighbours, limits of contexts and topology do not count: they can only lower what a policy reaches.
func Fill(nodes []*vgpu.Node, pods []vgpu.Request) (Bound, error) {
	f, err := newFill(nodes, pods)
	if err != nil {
		return Bound{}, fmt.Errorf("bound fill: %w", err)
	}
	if f.capacity == 0 {
		return Bound{}, fmt.Errorf("bound fill: none of the %d nodes has a device, at least one must", len(nodes))
	}
	m := newMaster(f)
	most, cut := m.generate()
	feasible := f.round(m.solution()).value
	b := Bound{Most: percent(most, f.capacity), Feasible: percent(feasible, f.capacity), Cut: cut}
	b.Most = max(b.Most, b.Feasible) // apart by rounding errors
	b.Gap = b.Most - b.Feasible
	return b, nil
}

func percent(part, of float64) float64 { return 100 * part / of }

// newFill groups nodes and pods that are alike.
func newFill(nodes []*vgpu.Node, pods []vgpu.Request) (*fill, error) {
	f := &fill{limits: usual}
	var examples []*vgpu.Node
	known := map[string]int{}
	for _, n := range nodes {
		healthy, err := healthyDevices(n)
		if err != nil {
			return nil, err
		}
		f.capacity += float64(vgpu.WholeGPU) * float64(len(n.Devices()))
		if len(healthy) == 0 {
			continue
		}
		key := fmt.Sprint(len(healthy), healthy[0].Shape(), n.Room())
		t, old := known[key]
		if !old {
			t = len(f.types)
			known[key] = t
			f.types = append(f.types, nodeType{devices: len(healthy), slots: int(healthy[0].Slots)})
			examples = append(examples, n)
		}
		f.types[t].count++
	}
	kinds := map[string]int{}
	for i := range pods {
		if n := len(pods[i].Containers); n > 1 {
			return nil, fmt.Errorf("pod %s has %d containers with slots, at most 1 is legal", pods[i].Pod, n)
		} else if n == 1 {
			f.add(&pods[i], examples, kinds)
		}
	}
	return f, nil
}

// healthyDevices returns the devices of an empty node that pods may use.
func healthyDevices(n *vgpu.Node) ([]vgpu.Device, error) {
	if taken, _ := n.Taken(); taken > 0 {
		return nil, fmt.Errorf("node %s has %d slots taken, legal are empty nodes", n.Name(), taken)
	}
	devices := slices.DeleteFunc(slices.Clone(n.Devices()), func(d vgpu.Device) bool { return !d.Healthy })
	for i := range devices {
		if devices[i].Shape() != devices[0].Shape() {
			return nil, fmt.Errorf("node %s has devices of several shapes, legal is one", n.Name())
		}
	}
	return devices, nil
}

// add counts a pod under its kind: pods are of one kind where they take the same of each type of node. A pod that no
// node can hold has no kind.
func (f *fill) add(r *vgpu.Request, examples []*vgpu.Node, kinds map[string]int) {
	items := make([]*item, len(examples))
	var key []byte
	for t, n := range examples {
		if items[t] = itemOn(r, n, f.types[t].devices); items[t] != nil {
			i := items[t]
			key = fmt.Append(key, t, i.width, i.slots, i.needs, i.perDevice, ";")
		}
	}
	if key == nil {
		return
	}
	k, old := kinds[string(key)]
	if !old {
		k = len(f.demand)
		kinds[string(key)] = k
		f.demand = append(f.demand, 0)
		for t, i := range items {
			if i != nil {
				i.kind = k
				f.types[t].items = append(f.types[t].items, *i)
			}
		}
	}
	f.demand[k]++
}

// itemOn returns what a pod takes of an empty node, nil where it does not fit.
func itemOn(r *vgpu.Request, n *vgpu.Node, devices int) *item {
	device := n.Devices()[slices.IndexFunc(n.Devices(), func(d vgpu.Device) bool { return d.Healthy })]
	share, legal := r.ShareOn(0, &device)
	if !legal || share.Devices > devices || !r.Host.Within(n.Room()) {
		return nil
	}
	i := &item{
		width: share.Devices, slots: int(share.Slots), perDevice: part(int64(share.Memory), int64(device.Memory)),
		value: float64(vgpu.WholeGPU) * float64(share.Devices) * float64(share.Slots) / float64(device.Slots),
	}
	i.needs[cpu] = part(r.Host.MilliCPU, n.Room().MilliCPU)
	i.needs[hostMemory] = part(int64(r.Host.Memory), int64(n.Room().Memory))
	i.needs[deviceMemory] = i.perDevice * float64(share.Devices) / float64(devices)
	return i
}

// part returns which part of a capacity a need is, 0 for a need of nothing.
func part(need, capacity int64) float64 {
	if need <= 0 {
		return 0
	}
	return float64(need) / float64(capacity)
}

// full is a sum of parts that still counts as all of a node: the sum of exact parts may exceed 1 by rounding.
const full = 1 + 1e-9

func (a amounts) plus(b amounts) amounts {
	for i := range a {
		a[i] += b[i]
	}
	return a
}

// within reports whether no amount exceeds all that the node has.
func (a amounts) within() bool {
	return a[cpu] <= full && a[hostMemory] <= full && a[deviceMemory] <= full
}

// times returns the price of the amounts.
func (a amounts) times(prices amounts) (sum float64) {
	for i := range a {
		sum += a[i] * prices[i]
	}
	return sum
}

// rest is what the amounts leave of a node, at a price.
func (a amounts) rest(prices amounts) (sum float64) {
	for i := range a {
		sum += max(0, 1-a[i]) * prices[i]
	}
	return sum
}

// unit returns the largest number of slots that divides those of the device and of all items: patterns count in units.
func (t *nodeType) unit() int {
	unit := t.slots
	for i := range t.items {
		for b := t.items[i].slots; b != 0; {
			unit, b = b, unit%b
		}
	}
	return max(1, unit)
}

// rounding is the part by which a bound is raised for the rounding errors of sums.
const rounding = 1e-9

func raised(x float64) float64 { return x + rounding*math.Abs(x) }
