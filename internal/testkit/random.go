package testkit

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// unit is the step of memory in drawn values. The unit is a multiple of the slots of all models and of up to four
// devices, so that properties about scaling are exact.
const unit = 840

// uniform draws one of the values, each as likely; rapid's ranges prefer small numbers.
func uniform[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

// oneIn draws true once in n.
func oneIn(t *rapid.T, label string, n int) bool {
	values := make([]bool, n)
	values[n-1] = true
	return uniform(t, label, values...)
}

// upTo draws a number from low to high, each as likely.
func upTo(t *rapid.T, label string, low, high int) int {
	values := make([]int, 0, high-low+1)
	for v := low; v <= high; v++ {
		values = append(values, v)
	}
	return uniform(t, label, values...)
}

// RandomModels are small and unlike, so that few draws meet many cases. Two of them have equal slots and unlike memory.
var RandomModels = []Model{
	{Name: "M10", Slots: 10, Memory: 40 * unit, Contexts: 48},
	{Name: "M10b", Slots: 10, Memory: 16 * unit, Contexts: 3},
	{Name: "M4", Slots: 4, Memory: 16 * unit, Contexts: 0},
	{Name: "M7", Slots: 7, Memory: 14 * unit, Contexts: 2},
}

// RandomNode draws a node of up to most devices, mostly of one model, a few of them unhealthy, with some links.
func RandomNode(t *rapid.T, name string, most int) *vgpu.Node {
	main := uniform(t, "model", RandomModels...)
	count := upTo(t, "devices", 1, most)
	if oneIn(t, "no devices", 20) {
		count = 0
	}
	devices := make([]vgpu.Device, 0, count)
	for i := range count {
		m := main
		if oneIn(t, "other model", 5) {
			m = uniform(t, "model", RandomModels...)
		}
		d := m.Device(name, i)
		d.Healthy = !oneIn(t, "sick", 10)
		for j := range i {
			class := upTo(t, "link", int(vgpu.LinkSYS), int(vgpu.LinkNVLink))
			d.Links = append(d.Links, vgpu.Link{Peer: DeviceID(name, j), Class: vgpu.LinkClass(class), Lanes: class % 2})
		}
		devices = append(devices, d)
	}
	n, err := vgpu.NewNode(name, devices)
	must.OK(t, err)
	return n
}

// RandomCluster draws so many nodes at most, of so many devices at most, without owners.
func RandomCluster(t *rapid.T, nodes, devices int) *vgpu.Cluster {
	count := upTo(t, "nodes", 1, nodes)
	list := make([]*vgpu.Node, 0, count)
	for i := range count {
		list = append(list, RandomNode(t, fmt.Sprintf("n%d", i), devices))
	}
	c, err := vgpu.NewCluster(list...)
	must.OK(t, err)
	return c
}

// RandomRequest draws a request of up to most containers: shares mostly, whole devices now and then, init containers and
// sidecars before the app containers.
func RandomRequest(t *rapid.T, pod string, most int) *vgpu.Request {
	r := &vgpu.Request{UID: vgpu.UID(pod), Pod: pod, Priority: int32(upTo(t, "priority", 0, 2))}
	count := upTo(t, "containers", 1, most)
	before := upTo(t, "before the apps", 0, count-1)
	for i := range count {
		c := vgpu.ContainerRequest{Name: fmt.Sprintf("c%d", i), Slots: randomSlots(t)}
		if i < before {
			c.Kind = uniform(t, "kind", vgpu.Init, vgpu.Sidecar)
		}
		if oneIn(t, "explicit memory", 4) {
			c.Memory = vgpu.Bytes(upTo(t, "memory", 1, 18)) * unit
		}
		r.Containers = append(r.Containers, c)
	}
	if oneIn(t, "variants", 4) {
		r.Variants = randomVariants(t, count == 1)
	}
	r.Tenancy = randomTenancy(t)
	if oneIn(t, "preferences", 4) {
		r.Preferences = []vgpu.Preference{{Model: uniform(t, "model", RandomModels...).Name, Loss: vgpu.MilliGPU(upTo(t, "loss", 0, 10) * 100)}}
	}
	return r
}

// randomTenancy draws one of few workloads, and a promise now and then.
func randomTenancy(t *rapid.T) vgpu.Tenancy {
	of := vgpu.Tenancy{Workload: uint32(upTo(t, "workload", 0, 4))}
	if oneIn(t, "promise", 3) {
		of.MaxSlowdown = int64(upTo(t, "max-slowdown in tenths", 10, 14) * 100)
	}
	return of
}

// randomVariants draws some of the models, and one that no device has. For a pod of one container it draws their needs
// and costs, some of them equal.
func randomVariants(t *rapid.T, single bool) []vgpu.Variant {
	var list []vgpu.Variant
	for _, m := range append(slices.Clone(RandomModels), Model{Name: "absent"}) {
		v := vgpu.Variant{Model: m.Name}
		if single && oneIn(t, "compute", 2) {
			v.Compute = vgpu.MilliGPU(upTo(t, "compute in 40ths", 0, 100) * 25)
		}
		if single {
			v.Cost = int64(upTo(t, "cost", 0, 3))
		}
		if oneIn(t, "variant", 2) {
			list = append(list, v)
		}
	}
	return list
}

// randomSlots draws 1 to 4 mostly, which is legal everywhere, then larger shares, then whole devices and illegal numbers.
func randomSlots(t *rapid.T) vgpu.Slots {
	if !oneIn(t, "many slots", 3) {
		return vgpu.Slots(upTo(t, "slots", 1, 4))
	}
	return uniform[vgpu.Slots](t, "slots", 5, 6, 7, 8, 9, 10, 12, 14, 20, 30, 13)
}

// RandomAssignment puts the containers of a request on random devices of a node, free or not. The result may be more
// than the devices have; false when a container is legal on no device.
func RandomAssignment(t *rapid.T, n *vgpu.Node, r *vgpu.Request) (vgpu.Assignment, bool) {
	a := vgpu.Assignment{UID: r.UID, Pod: r.Pod, Node: n.Name(), Tenancy: r.Tenancy}
	for k := range r.Containers {
		c := &r.Containers[k]
		if len(n.Devices()) == 0 {
			return a, false
		}
		first := upTo(t, "device", 0, len(n.Devices())-1)
		share, refusal := r.On(k, &n.Devices()[first])
		if refusal != nil {
			return a, false
		}
		var ids []vgpu.DeviceID
		for i := first; i < len(n.Devices()) && len(ids) < share.Devices; i++ {
			if n.Shape(i) == n.Shape(first) {
				ids = append(ids, n.Devices()[i].ID)
			}
		}
		if len(ids) < share.Devices {
			return a, false
		}
		a.Containers = append(a.Containers, vgpu.ContainerAssignment{Name: c.Name, Kind: c.Kind, Devices: ids, Share: share})
	}
	return a, true
}

// Fill books pods and holds on random devices, wherever they fit; pods bounds their number.
func Fill(t *rapid.T, c *vgpu.Cluster, pods int) {
	for i := range upTo(t, "pods", 0, pods) {
		r := RandomRequest(t, fmt.Sprintf("old-%d", i), 2)
		a, ok := RandomAssignment(t, uniform(t, "node", c.Nodes()...), r)
		if !ok {
			continue
		}
		if oneIn(t, "hold", 4) {
			_ = c.Hold(vgpu.Hold{Assignment: a, Priority: r.Priority}) // what is too large stays out
		} else {
			_ = c.Add(a)
		}
	}
}

// RandomRoom draws CPU and memory of a host, little of either, so that they often run out.
func RandomRoom(t *rapid.T) vgpu.Room {
	return vgpu.Room{
		MilliCPU: int64(upTo(t, "half cores", 0, 32)) * 500, Memory: vgpu.Bytes(upTo(t, "host memory", 0, 16)) * vgpu.GiB,
	}
}

// Furnish draws the rooms of all hosts.
func Furnish(t *rapid.T, c *vgpu.Cluster) {
	for _, n := range c.Nodes() {
		n.SetRoom(RandomRoom(t))
	}
}

// RandomKind draws a usual request: as RandomRequest does, and now and then one without GPUs.
func RandomKind(t *rapid.T) fragmentation.Kind {
	host := RandomRoom(t)
	k := fragmentation.Kind{MilliCPU: host.MilliCPU / 4, Memory: host.Memory / 4, Slots: randomSlots(t), Weight: int64(upTo(t, "weight", 1, 9))}
	if oneIn(t, "device memory", 4) {
		k.DeviceMemory = vgpu.Bytes(upTo(t, "memory", 1, 18)) * unit
	}
	if oneIn(t, "without GPUs", 5) {
		k.Slots, k.DeviceMemory = 0, 0
	} else if oneIn(t, "models", 3) {
		k.Models = uniform(t, "which models", "M10", "M10|M4", "M10b|M7", "M4", "absent")
	}
	return k
}

// RandomMix draws a mix of up to six usual requests.
func RandomMix(t *rapid.T) *fragmentation.Mix {
	n := upTo(t, "usual requests", 0, 6)
	kinds := make([]fragmentation.Kind, 0, n)
	for range n {
		kinds = append(kinds, RandomKind(t))
	}
	m, err := fragmentation.NewMix(kinds)
	must.OK(t, err)
	return m
}

// Shuffled returns a cluster with the same devices, pods and holds, given in a drawn order.
func Shuffled(t *rapid.T, c *vgpu.Cluster) *vgpu.Cluster {
	nodes := make([]*vgpu.Node, 0, len(c.Nodes()))
	for _, old := range Permuted(t, c.Nodes()) {
		n, err := vgpu.NewNode(old.Name(), Permuted(t, old.Devices()))
		must.OK(t, err)
		for _, a := range Permuted(t, old.Assignments()) {
			must.OK(t, n.Add(a))
		}
		for _, h := range Permuted(t, old.Holds()) {
			must.OK(t, n.Hold(h))
		}
		n.SetRoom(old.Room())
		nodes = append(nodes, n)
	}
	shuffled, err := vgpu.NewCluster(nodes...)
	must.OK(t, err)
	return shuffled
}

// Permuted returns a list in an order that is drawn.
func Permuted[T any](t *rapid.T, list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return rapid.Permutation(list).Draw(t, "order")
}

// Ordinals returns the numbers from 0 to n-1.
func Ordinals(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}
