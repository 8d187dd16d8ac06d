package placement

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// extremeRequests are pods of the most containers that may ask for vGPUs. None of them fits on a node of eight free devices of ten slots, or only just.
func extremeRequests() map[string]*vgpu.Request {
	of := func(memory vgpu.Bytes, slots ...vgpu.Slots) *vgpu.Request {
		r := &vgpu.Request{UID: "extreme", Pod: "team/extreme"}
		for i, k := range slots {
			c := vgpu.ContainerRequest{Name: fmt.Sprint("c", i), Slots: k}
			if memory > 0 {
				c.Memory = memory + vgpu.Bytes(i)*vgpu.GiB/8
			}
			r.Containers = append(r.Containers, c)
		}
		return r
	}
	ones := make([]vgpu.Slots, vgpu.MaxContainers)
	for i := range ones {
		ones[i] = 1
	}
	nine := of(2*vgpu.GiB, ones...) // seven small ones and nine that are more than half of a device: the sum is two thirds of eight devices
	for i := range 9 {
		nine.Containers[7+i].Memory += 18 * vgpu.GiB
	}
	return map[string]*vgpu.Request{
		"memory, nine halves":      nine,
		"slots, too many by sum":   of(0, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2),
		"slots, just all":          of(0, 9, 9, 8, 8, 7, 7, 6, 6, 4, 4, 3, 3, 2, 2, 1, 1),
		"slots, not by pairs":      of(0, 9, 9, 8, 8, 8, 7, 7, 6, 6, 3, 2, 2, 1, 1, 1, 2),
		"memory, too large pieces": of(13*vgpu.GiB+vgpu.GiB/2, ones...),
		"memory, unlike pieces":    of(14*vgpu.GiB, ones...),
		"memory, fits":             of(6*vgpu.GiB, ones...),
	}
}

func extremeNode(tb testing.TB, name string, taken vgpu.Slots) *vgpu.Node {
	var devices []vgpu.Device
	for i := range 8 {
		devices = append(devices, vgpu.Device{ID: vgpu.DeviceID(fmt.Sprint(name, "-", i)), Index: i, Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB, Contexts: 48, Healthy: true})
	}
	n, err := vgpu.NewNode(name, devices)
	if err != nil {
		tb.Fatal(err)
	}
	if taken > 0 {
		share, _ := (&vgpu.ContainerRequest{Slots: taken}).On(&devices[0], 0, 0)
		if err := n.Add(vgpu.Assignment{UID: vgpu.UID("on-" + name), Node: name, Containers: []vgpu.ContainerAssignment{{Name: "c", Devices: []vgpu.DeviceID{devices[0].ID}, Share: share}}}); err != nil {
			tb.Fatal(err)
		}
	}
	return n
}

// One look at a cluster takes a bounded number of steps, however many nodes it has, and sums refuse without a step.
func TestLookTakesBoundedSteps(t *testing.T) {
	for _, nodes := range []int{1, 60, 1000, 5000} {
		for name, r := range extremeRequests() {
			r.Steps = StepsOn(nodes)
			s := newSearch(extremeNode(t, "n", 0), r, freeNow(extremeNode(t, "n", 0), r), nil)
			s.find()
			if most := max(attemptSteps, leastSteps*nodes); s.steps > r.Steps+len(r.Containers) || nodes*r.Steps > most {
				t.Errorf("%s: %d steps on each of %d nodes", name, s.steps, nodes)
			}
			if s.steps > 0 && name == "slots, too many by sum" {
				t.Errorf("%s: %d steps", name, s.steps)
			}
		}
	}
}

// A pod that fits easily fits without a step: what others have used up keeps it from no node.
func TestEasyFitTakesNoSteps(t *testing.T) {
	n := extremeNode(t, "n", 4)
	for _, slots := range [][]vgpu.Slots{{3, 2}, {5, 5, 5, 5, 2, 2}, {20, 3, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 9, 9, 9}} {
		r := &vgpu.Request{UID: "easy", Pod: "team/easy"}
		for i, k := range slots {
			r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: fmt.Sprint("c", i), Slots: k})
		}
		s := newSearch(n, r, freeNow(n, r), nil)
		if !s.find() || s.steps > 0 {
			t.Errorf("%v: %d steps", slots, s.steps)
		}
	}
}

// BenchmarkExtremes is one look at all nodes of a cluster for a pod of the most containers: all nodes by Fit, as in Filter and PostFilter, and those
// that fit by Score.
func BenchmarkExtremes(b *testing.B) {
	for _, nodes := range []int{60, 1000} {
		var cluster []*vgpu.Node
		for i := range nodes {
			cluster = append(cluster, extremeNode(b, fmt.Sprintf("n%04d", i), vgpu.Slots(i%3)))
		}
		for name, r := range extremeRequests() {
			b.Run(fmt.Sprintf("pod/%d-containers/%s/%d-nodes", vgpu.MaxContainers, name, nodes), func(b *testing.B) {
				r.Steps = StepsOn(nodes)
				p := Policy{}.orDefault()
				for b.Loop() {
					for _, n := range cluster {
						if p.Fit(n, r) == nil {
							scoreOn(n, r, &p)
						}
					}
				}
			})
		}
	}
}

// BenchmarkWholeDevices is one look at all nodes for a pod of half of the devices of nodes of sixteen, whose links are all alike, or not.
func BenchmarkWholeDevices(b *testing.B) {
	for name, islands := range map[string]int{"one switch": 1, "two islands": 2} {
		b.Run(name, func(b *testing.B) {
			var devices []vgpu.Device
			for i := range 16 {
				d := vgpu.Device{ID: vgpu.DeviceID(fmt.Sprint("GPU-", i)), Index: i, Model: "V100", Slots: 10, Memory: 32 * vgpu.GiB, Contexts: 48, Healthy: true}
				for j := range i {
					if i*islands/16 == j*islands/16 {
						d.Links = append(d.Links, vgpu.Link{Peer: vgpu.DeviceID(fmt.Sprint("GPU-", j)), Class: vgpu.LinkNVLink, Lanes: 6})
					}
				}
				devices = append(devices, d)
			}
			n, err := vgpu.NewNode("n", devices)
			if err != nil {
				b.Fatal(err)
			}
			r, p := &vgpu.Request{UID: "u", Pod: "team/whole", Containers: []vgpu.ContainerRequest{{Name: "c", Slots: 80}}}, Policy{}.orDefault()
			for b.Loop() {
				scoreOn(n, r, &p)
			}
		})
	}
}
