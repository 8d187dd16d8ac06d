package testkit

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// Model is a kind of device.
type Model struct {
	Name     string
	Slots    vgpu.Slots
	Memory   vgpu.Bytes
	Contexts int
}

// Models that tests use. T4 has 4 slots, so that a cluster with it has unlike slots.
var (
	A100 = Model{Name: "A100", Slots: 10, Memory: 40 * vgpu.GiB, Contexts: 48}
	H100 = Model{Name: "H100", Slots: 10, Memory: 80 * vgpu.GiB, Contexts: 60}
	V100 = Model{Name: "V100", Slots: 10, Memory: 32 * vgpu.GiB, Contexts: 48}
	T4   = Model{Name: "T4", Slots: 4, Memory: 16 * vgpu.GiB, Contexts: 48}
)

// Device returns a healthy device without links; its ID is "node/g<index>".
func (m Model) Device(node string, index int) vgpu.Device {
	return vgpu.Device{
		ID: DeviceID(node, index), Index: index, Model: m.Name,
		Slots: m.Slots, Memory: m.Memory, Contexts: m.Contexts, Healthy: true,
	}
}

// Devices returns k healthy devices, with the indices from 0.
func (m Model) Devices(node string, k int) []vgpu.Device {
	list := make([]vgpu.Device, 0, k)
	for i := range k {
		list = append(list, m.Device(node, i))
	}
	return list
}

// DeviceID names a device as Device does.
func DeviceID(node string, index int) vgpu.DeviceID {
	return vgpu.DeviceID(fmt.Sprintf("%s/g%d", node, index))
}

// Node returns a node with k devices of a model.
func Node(tb testing.TB, name string, m Model, k int) *vgpu.Node {
	tb.Helper()
	n, err := vgpu.NewNode(name, m.Devices(name, k))
	must.OK(tb, err)
	return n
}

// Cluster joins nodes.
func Cluster(tb testing.TB, nodes ...*vgpu.Node) *vgpu.Cluster {
	tb.Helper()
	c, err := vgpu.NewCluster(nodes...)
	must.OK(tb, err)
	return c
}

// Request returns the request of a pod with app containers c0, c1, … of so many slots. The UID is the pod's name.
func Request(pod string, slots ...vgpu.Slots) *vgpu.Request {
	r := &vgpu.Request{UID: vgpu.UID(pod), Pod: pod}
	for i, k := range slots {
		r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: fmt.Sprintf("c%d", i), Slots: k})
	}
	return r
}

// Assignment returns the assignment of a pod with one container, "c0", that has k slots of one device of the node.
func Assignment(tb testing.TB, n *vgpu.Node, index int, pod string, k vgpu.Slots) vgpu.Assignment {
	tb.Helper()
	i := n.Index(DeviceID(n.Name(), index))
	if i < 0 {
		tb.Fatalf("node %s has no device g%d", n.Name(), index)
	}
	d := &n.Devices()[i]
	share, refusal := (&vgpu.ContainerRequest{Name: "c0", Slots: k}).On(d, 0, 0)
	if refusal != nil || share.Devices != 1 {
		tb.Fatalf("%d slots are no share of device %s", k, d.ID)
	}
	return vgpu.Assignment{UID: vgpu.UID(pod), Pod: pod, Node: n.Name(), Containers: []vgpu.ContainerAssignment{
		{Name: "c0", Devices: []vgpu.DeviceID{d.ID}, Share: share},
	}}
}
