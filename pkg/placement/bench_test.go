package placement_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// busyNode has eight devices with NVLinks among all, shares on most of them, and as many holds as asked for.
func busyNode(tb testing.TB, holds int) *vgpu.Node {
	tb.Helper()
	var devices []vgpu.Device
	for i := range 8 {
		d := vgpu.Device{
			ID: vgpu.DeviceID(fmt.Sprint("GPU-", i)), Index: i, Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB, Contexts: 48, Healthy: true,
		}
		for j := range 8 {
			if j != i {
				d.Links = append(d.Links, vgpu.Link{Peer: vgpu.DeviceID(fmt.Sprint("GPU-", j)), Class: vgpu.LinkNVLink, Lanes: 1 + (i^j)%3})
			}
		}
		devices = append(devices, d)
	}
	n, err := vgpu.NewNode("n1", devices)
	must.OK(tb, err)
	for i, k := range []vgpu.Slots{4, 6, 9, 3} {
		share, _ := (&vgpu.ContainerRequest{Slots: k}).On(&devices[i], 0, 0)
		must.OK(tb, n.Add(vgpu.Assignment{UID: vgpu.UID(fmt.Sprint("pod-", i)), Node: "n1", Containers: []vgpu.ContainerAssignment{
			{Name: "main", Devices: []vgpu.DeviceID{devices[i].ID}, Share: share},
		}}))
	}
	for i := range holds {
		share, _ := (&vgpu.ContainerRequest{Slots: 1}).On(&devices[i%8], 0, 0)
		must.OK(tb, n.Hold(vgpu.Hold{Assignment: vgpu.Assignment{UID: vgpu.UID(fmt.Sprint("held-", i)), Node: "n1", Containers: []vgpu.ContainerAssignment{
			{Name: "main", Devices: []vgpu.DeviceID{devices[i%8].ID}, Share: share},
		}}}))
	}
	return n
}

func requestOf(slots ...vgpu.Slots) *vgpu.Request {
	r := &vgpu.Request{UID: "new", Pod: "default/new"}
	for i, k := range slots {
		r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: fmt.Sprint("c", i), Slots: k})
	}
	return r
}

// BenchmarkFitScore is the cost of one node in one scheduling cycle. The target is 500 ns without an allocation for the
// first cases, so that 5,000 nodes take 2.5 ms.
func BenchmarkFitScore(b *testing.B) {
	for _, bc := range []struct {
		name  string
		slots []vgpu.Slots
		holds int
	}{
		{"share", []vgpu.Slots{3}, 0},
		{"share,8holds", []vgpu.Slots{3}, 8},
		{"refused", []vgpu.Slots{110}, 0},
		{"whole2of4", []vgpu.Slots{20}, 0},
		{"whole4of4", []vgpu.Slots{40}, 0},
		{"two containers", []vgpu.Slots{3, 2}, 0},
		{"four containers", []vgpu.Slots{3, 2, 5, 10}, 0},
	} {
		b.Run(bc.name, func(b *testing.B) {
			n, r := busyNode(b, bc.holds), requestOf(bc.slots...)
			p, err := placement.ByName("packed")
			must.OK(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if placement.Fit(n, r) == nil {
					placement.Score(n, r, p)
				}
			}
		})
	}
}
