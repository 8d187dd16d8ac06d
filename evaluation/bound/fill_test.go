package bound_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/evaluation/bound"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// machine is one node of a test: devices of one model, slots each and GiB each, and a host.
type machine struct {
	devices int
	model   string
	slots   vgpu.Slots
	memory  vgpu.Bytes
	host    vgpu.Room
}

func (m machine) node(t must.T, name string) *vgpu.Node {
	var devices []vgpu.Device
	for i := range m.devices {
		devices = append(devices, vgpu.Device{
			ID: vgpu.DeviceID(fmt.Sprintf("%s/g%d", name, i)), Index: i, Model: m.model, Slots: m.slots, Memory: m.memory * vgpu.GiB, Healthy: true,
		})
	}
	n, err := vgpu.NewNode(name, devices)
	must.OK(t, err)
	n.SetRoom(m.host)
	return n
}

// repeat returns so many of one machine.
func repeat(t *testing.T, count int, m machine) (all []*vgpu.Node) {
	for i := range count {
		all = append(all, m.node(t, fmt.Sprintf("%s-%d-%03d", m.model, m.devices, i)))
	}
	return all
}

// wants is a kind of pod: slots, GiB of device memory (0: in proportion), room of the host, models (none: any).
type wants struct {
	slots  vgpu.Slots
	memory vgpu.Bytes
	host   vgpu.Room
	models []string
}

func (w wants) request(number int) vgpu.Request {
	r := vgpu.Request{UID: vgpu.UID(fmt.Sprintf("u%d", number)), Pod: fmt.Sprintf("test/p%d", number), Host: w.host}
	if w.slots > 0 {
		r.Containers = []vgpu.ContainerRequest{{Name: "main", Slots: w.slots, Memory: w.memory * vgpu.GiB}}
		for _, m := range w.models {
			r.Variants = append(r.Variants, vgpu.Variant{Model: m})
		}
	}
	return r
}

func pods(kinds ...any) (all []vgpu.Request) {
	for i := 0; i < len(kinds); i += 2 {
		for range kinds[i].(int) {
			all = append(all, kinds[i+1].(wants).request(len(all)))
		}
	}
	return all
}

// TestTight has cases whose best plan is known. The aggregates of the GPUs say 100 % in each but the first.
func TestTight(t *testing.T) {
	roomy := vgpu.Room{MilliCPU: 96000, Memory: 512 * vgpu.GiB}
	single := machine{1, "T4", 10, 16, roomy}
	eight := machine{8, "A100", 10, 80, roomy}
	for _, c := range []struct {
		name  string
		nodes []*vgpu.Node
		pods  []vgpu.Request
		want  float64
	}{
		{"too few pods", repeat(t, 10, single), pods(7, wants{slots: 5}), 35},
		{"three slots leave one of ten", repeat(t, 10, eight), pods(1000, wants{slots: 3}), 90},
		{"six slots leave four of ten", repeat(t, 10, single), pods(20, wants{slots: 6}), 60},
		{"sixes and fours fill a GPU", repeat(t, 10, single), pods(20, wants{slots: 6}, 5, wants{slots: 4}), 80},
		{"half of the GPUs lack CPU", repeat(t, 3, eight), pods(40, wants{slots: 10, host: vgpu.Room{MilliCPU: 24000}}), 50},
		{"half of the GPUs lack host memory", repeat(t, 3, eight), pods(40, wants{slots: 10, host: vgpu.Room{Memory: 128 * vgpu.GiB}}), 50},
		{"one pod has most of a device's memory", repeat(t, 4, single), pods(40, wants{slots: 2, memory: 9}), 20},
		{"no eight GPUs on nodes of four", repeat(t, 4, machine{4, "V100", 10, 32, roomy}), pods(9, wants{slots: 30}, 9, wants{slots: 80}), 75},
		{"the model is too rare", append(repeat(t, 3, single), repeat(t, 1, machine{1, "L4", 10, 24, roomy})...), pods(9, wants{slots: 10, models: []string{"L4", "H100"}}), 25},
		{"pods without a GPU do not count", repeat(t, 2, single), pods(9, wants{host: roomy}, 1, wants{slots: 10}), 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := bound.Fill(c.nodes, c.pods)
			must.OK(t, err)
			if math.Abs(b.Most-c.want) > .01 || math.Abs(b.Feasible-c.want) > .01 || b.Cut || b.Gap != b.Most-b.Feasible {
				t.Errorf("%+v, want most and feasible %v", b, c.want)
			}
		})
	}
}

// TestUnhealthy: an unhealthy device counts as part of the whole, as in the simulator, and no pod gets it.
func TestUnhealthy(t *testing.T) {
	devices := []vgpu.Device{{ID: "a", Slots: 10, Healthy: true}, {ID: "b", Index: 1, Slots: 10}}
	n, err := vgpu.NewNode("n1", devices)
	must.OK(t, err)
	b, err := bound.Fill([]*vgpu.Node{n}, pods(4, wants{slots: 10}))
	if err != nil || math.Abs(b.Most-50) > .01 {
		t.Errorf("%+v and error %v, want 50", b, err)
	}
}

func TestRefused(t *testing.T) {
	single := machine{1, "T4", 10, 16, vgpu.Room{}}
	two := pods(1, wants{slots: 2})
	two[0].Containers = append(two[0].Containers, vgpu.ContainerRequest{Name: "second", Slots: 1})
	mixed, err := vgpu.NewNode("mixed", []vgpu.Device{{ID: "a", Slots: 10, Healthy: true}, {ID: "b", Slots: 4, Healthy: true}})
	must.OK(t, err)
	taken := single.node(t, "taken")
	request := wants{slots: 2}.request(7)
	policy, err := placement.ByName("packed")
	must.OK(t, err)
	p, refusal := placement.Assign(taken, &request, policy)
	if refusal != nil {
		t.Fatal(refusal)
	}
	must.OK(t, taken.Add(p))
	for _, c := range []struct {
		nodes []*vgpu.Node
		pods  []vgpu.Request
		want  string
	}{
		{repeat(t, 1, single), two, "pod test/p0 has 2 containers with slots, at most 1 is legal"},
		{[]*vgpu.Node{mixed}, nil, "node mixed has devices of several shapes, legal is one"},
		{[]*vgpu.Node{taken}, nil, "node taken has 2 slots taken, legal are empty nodes"},
		{nil, two[:0], "none of the 0 nodes has a device, at least one must"},
	} {
		if _, err := bound.Fill(c.nodes, c.pods); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// drawKinds draws kinds of pods, such that any of the resources may be the one that runs out.
func drawKinds(t *rapid.T, most int) (all []wants) {
	for range rapid.IntRange(1, most).Draw(t, "kinds") {
		w := wants{
			slots:  vgpu.Slots(rapid.SampledFrom([]int{0, 1, 2, 3, 4, 4, 8}).Draw(t, "slots")),
			memory: vgpu.Bytes(rapid.SampledFrom([]int{0, 0, 3, 9, 14}).Draw(t, "memory")),
			host:   vgpu.Room{MilliCPU: 1000 * rapid.Int64Range(0, 6).Draw(t, "cpu"), Memory: vgpu.GiB * vgpu.Bytes(rapid.IntRange(0, 6).Draw(t, "host memory"))},
		}
		if rapid.IntRange(0, 4).Draw(t, "model") == 0 {
			w.models = []string{rapid.SampledFrom([]string{"T4", "L4"}).Draw(t, "of")}
		}
		all = append(all, w)
	}
	return all
}

// drawFill draws nodes of up to two types and pods of a few kinds.
func drawFill(t *rapid.T, nodes, devices, most int) ([]*vgpu.Node, []vgpu.Request) {
	var types []machine
	for _, model := range []string{"T4", "L4"} {
		types = append(types, machine{
			rapid.IntRange(1, devices).Draw(t, "devices"), model, 4, 16,
			vgpu.Room{MilliCPU: 1000 * rapid.Int64Range(4, 20).Draw(t, "node cpu"), Memory: vgpu.GiB * vgpu.Bytes(rapid.IntRange(4, 20).Draw(t, "node memory"))},
		})
	}
	var all []*vgpu.Node
	for i := range rapid.IntRange(1, nodes).Draw(t, "nodes") {
		all = append(all, rapid.SampledFrom(types).Draw(t, "type").node(t, fmt.Sprintf("n%02d", i)))
	}
	kinds := drawKinds(t, 4)
	var arrived []vgpu.Request
	for i := range rapid.IntRange(0, most).Draw(t, "pods") {
		arrived = append(arrived, rapid.SampledFrom(kinds).Draw(t, "pod").request(i))
	}
	return all, arrived
}

// TestAboveEveryPolicy plays random fills: no policy ends above the bound.
func TestAboveEveryPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, arrived := drawFill(t, 6, 3, 40)
		b, err := bound.Fill(nodes, arrived)
		must.OK(t, err)
		if b.Feasible > b.Most || b.Cut {
			t.Fatalf("%+v", b)
		}
		setup := sim.Setup{Nodes: nodes, Queue: sim.Drop}
		var kinds []fragmentation.Kind
		for _, r := range arrived {
			setup.Jobs = append(setup.Jobs, sim.Job{Request: r})
			kinds = append(kinds, fragmentation.Kind{MilliCPU: r.Host.MilliCPU, Memory: r.Host.Memory, Slots: r.PeakSlots(), Weight: 1})
		}
		if len(kinds) > 0 {
			if setup.Mix, err = fragmentation.NewMix(kinds); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range placement.Policies() {
			if setup.Policy, err = placement.ByName(name); err != nil {
				t.Fatal(err)
			}
			h, err := sim.Run(setup)
			must.OK(t, err)
			if n := len(h.Samples); n > 0 && h.AllocatedPercent(&h.Samples[n-1]) > b.Most+1e-6 {
				t.Fatalf("%s allocates %v, bound %+v", name, h.AllocatedPercent(&h.Samples[n-1]), b)
			}
		}
	})
}

// TestTwin compares with the best of all plans, found by trying each: the bound is not below it, and the plan not above.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, arrived := drawFill(t, 3, 2, 5)
		b, err := bound.Fill(nodes, arrived)
		must.OK(t, err)
		best := 100 * float64(tryAll(nodes, arrived)) / float64(sim.Capacity(nodes))
		if b.Most < best-1e-6 || b.Feasible > best+1e-6 {
			t.Fatalf("%+v, the best plan has %v", b, best)
		}
	})
}

// tryAll returns the most compute of all plans: each pod has no place, or any set of devices that can hold it.
func tryAll(nodes []*vgpu.Node, left []vgpu.Request) vgpu.MilliGPU {
	if len(left) == 0 {
		return 0
	}
	best := tryAll(nodes, left[1:])
	r := left[0]
	if len(r.Containers) == 0 {
		return best
	}
	for _, n := range nodes {
		share, legal := r.ShareOn(0, &n.Devices()[0])
		if room := n.Room(); legal && r.Host.Within(room) {
			n.SetRoom(room.Minus(r.Host))
			for set := range 1 << len(n.Devices()) {
				if a, ok := on(n, &r, share, set); ok && n.Add(a) == nil {
					best = max(best, vgpu.MilliGPU(share.Devices)*vgpu.ComputeOf(share.Slots, 4)+tryAll(nodes, left[1:]))
					n.Remove(r.UID)
				}
			}
			n.SetRoom(room)
		}
	}
	return best
}

// on assigns the devices of a set of bits.
func on(n *vgpu.Node, r *vgpu.Request, share vgpu.Share, set int) (vgpu.Assignment, bool) {
	var ids []vgpu.DeviceID
	for i := range n.Devices() {
		if set>>i&1 == 1 {
			ids = append(ids, n.Devices()[i].ID)
		}
	}
	return vgpu.Assignment{
		UID: r.UID, Pod: r.Pod, Node: n.Name(), Containers: []vgpu.ContainerAssignment{{Name: "main", Devices: ids, Share: share}},
	}, len(ids) == share.Devices
}
