package preemption

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestReprieveBound: reprieves end after so many tries, and the plan says that it was cut.
func TestReprieveBound(t *testing.T) {
	whole := func(name string, priority int32) vgpu.Request {
		return vgpu.Request{UID: vgpu.UID(name), Pod: name, Priority: priority, Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 10}}}
	}
	var devices []vgpu.Device
	for d := range 4 {
		devices = append(devices, vgpu.Device{ID: vgpu.DeviceID(fmt.Sprint("g", d)), Index: d, Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB, Healthy: true})
	}
	n, err := vgpu.NewNode("n1", devices)
	must.OK(t, err)
	candidates := &Candidates{}
	for d := range devices {
		r := whole(fmt.Sprint("old-", d), 0)
		share, _ := r.ShareOn(0, &devices[d])
		a := vgpu.Assignment{UID: r.UID, Pod: r.Pod, Node: "n1", Containers: []vgpu.ContainerAssignment{
			{Name: "main", Devices: []vgpu.DeviceID{devices[d].ID}, Share: share},
		}}
		must.OK(t, n.Add(a))
		candidates.Pods = append(candidates.Pods, Pod{UID: r.UID, Name: r.Pod, Node: "n1", Gang: -1})
	}
	want := &gang.Group{Name: "new", MinCount: 2, Members: []gang.Member{{Request: whole("new-0", 5)}, {Request: whole("new-1", 5), Rank: 1}}}
	for asks, victims := range map[int]int{0: 4, 1: 3, 4: 2} {
		f := newGangSearch(newQuestion(&gang.Cluster{Nodes: []*vgpu.Node{n}}, want, candidates, Config{}))
		f.reprievesLeft = asks
		f.reprieve(f.regions()[0], []int32{0, 1, 2, 3})
		if f.best == nil || f.best.cost.Victims != victims || f.q.stats.Cut != (asks < 4) {
			t.Errorf("%d tries: %+v, cut %t; %d victims are to be", asks, f.best, f.q.stats.Cut, victims)
		}
	}
}
