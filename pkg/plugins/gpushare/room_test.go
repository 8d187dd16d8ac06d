package gpushare

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// on adds a pod that asks for CPU and memory, and for slots of the node's first device, 0 for none.
func (d *desk) on(node, name string, k int, cpu, memory string) *v1.Pod {
	d.t.Helper()
	p := with(pod(name, k), func(p *v1.Pod) {
		p.Spec.NodeName = node
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
		}
	})
	if k > 0 {
		p = bound(d.t, p, share(p, node, "GPU-"+node+"-0", vgpu.Slots(k)))
	}
	return d.add(p, node)
}

// withMemory gives the node so much memory.
func (d *desk) withMemory(node, memory string) {
	n := d.byName[node].Node().DeepCopy()
	n.Status.Allocatable[v1.ResourceMemory] = resource.MustParse(memory)
	d.byName[node].SetNode(n)
}

// The ledger carries what the pods of the NodeInfo leave of CPU and memory, whichever ask for vGPUs.
func TestRoomIsWhatPodsLeave(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2)) // 64 cores
	d.withMemory("n1", "100Gi")
	room := func() vgpu.Room {
		d.preFilter(pod("asker", 1))
		return d.plugin.state.nodes["n1"].cached.Load().ledger.Room()
	}
	steps := []struct {
		what string
		do   func()
		want vgpu.Room
	}{
		{"an empty node", func() {}, vgpu.Room{MilliCPU: 64000, Memory: 100 * gib}},
		{"a pod with vGPUs", func() { d.on("n1", "gpu", 3, "1500m", "10Gi") }, vgpu.Room{MilliCPU: 62500, Memory: 90 * gib}},
		{"a pod without", func() { d.on("n1", "cpu", 0, "500m", "1Gi") }, vgpu.Room{MilliCPU: 62000, Memory: 89 * gib}},
		{"a node that shrank", func() { d.withMemory("n1", "5Gi") }, vgpu.Room{MilliCPU: 62000}},
		{"more than the node has", func() { d.on("n1", "hog", 0, "70", "1Gi") }, vgpu.Room{}},
	}
	var published []*vgpu.Node
	for _, step := range steps {
		step.do()
		if diff := cmp.Diff(step.want, room()); diff != "" {
			t.Errorf("%s: room (-want +got):\n%s", step.what, diff)
		}
		published = append(published, d.plugin.Published()[0].Ledger)
	}
	for i, step := range steps {
		if got := published[i].Room(); got != step.want {
			t.Errorf("%s: the ledger that was published then has the room %v now, want %v", step.what, got, step.want)
		}
	}
	// The pods beside do not change what the devices hold.
	if taken, _ := d.plugin.state.nodes["n1"].cached.Load().ledger.Taken(); taken != 3 {
		t.Errorf("%d slots are taken, want 3", taken)
	}
}

// A pod that names the node itself, and of whose amount 64 bits hold a part, gives no pod room: neither where the node's total
// wraps to a small one, nor where the amount itself does.
func TestAbsurdAmountsLeaveNoRoom(t *testing.T) {
	for name, c := range map[string]struct{ cpu, memory string }{
		"2^64 - 32Gi bytes":           {"1", "18446744039349813248"},
		"2^64 + 1 bytes":              {"1", "18446744073709551617"},
		"2^63 bytes":                  {"1", "9223372036854775808"},
		"2^64 + 1 thousandths of CPU": {"18446744073709551617m", "1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, gpuNode("n1", 2))
			d.withMemory("n1", "100Gi")
			d.on("n1", "gpu", 3, "1", "40Gi")
			absurd := d.on("n1", "absurd", 0, c.cpu, c.memory)
			for what, room := range map[string]func() vgpu.Room{
				"built anew": func() vgpu.Room {
					return d.plugin.state.build(d.plugin.state.nodes["n1"], d.byName["n1"]).ledger.Room()
				},
				"kept": func() vgpu.Room {
					d.preFilter(pod("asker", 1))
					return d.plugin.state.nodes["n1"].cached.Load().ledger.Room()
				},
			} {
				if got := room(); got != (vgpu.Room{}) {
					t.Errorf("%s: the room is %v, want none", what, got)
				}
			}
			d.remove(absurd, "n1")
			d.preFilter(pod("asker", 1))
			if got, want := d.plugin.state.nodes["n1"].cached.Load().ledger.Room(), (vgpu.Room{MilliCPU: 63000, Memory: 60 * gib}); got != want {
				t.Errorf("the room is %v once it is gone, want %v", got, want)
			}
		})
	}
}

// The coming and going of pods without vGPUs costs no new ledger, and everything else does.
func TestOnlyTheRoomIsNew(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 2), gpuNode("n2", 2))
	n1 := d.plugin.state.nodes["n1"]
	gpu := d.on("n1", "gpu", 3, "1", "1Gi")
	d.preFilter(pod("asker", 1))
	var cpu, second, nominated *v1.Pod
	holder := pod("holder", 2)
	steps := []struct {
		what string
		do   func()
		same bool
	}{
		{"a pod without vGPUs comes", func() { cpu = d.on("n1", "cpu", 0, "1", "1Gi") }, true},
		{"another comes", func() { d.on("n1", "cpu-2", 0, "1", "1Gi") }, true},
		{"it goes", func() { d.remove(cpu, "n1") }, true},
		{"the node is written", func() { d.withMemory("n1", "1Gi") }, true},
		{"a pod with vGPUs comes", func() { second = d.on("n1", "gpu-2", 2, "1", "1Gi") }, false},
		{"another takes its place", func() { d.remove(second, "n1"); d.on("n1", "gpu-3", 4, "1", "1Gi") }, false},
		{"one goes and one without comes", func() { d.remove(gpu, "n1"); d.on("n1", "cpu-3", 0, "1", "1Gi") }, false},
		{"a hold", func() {
			if err := d.plugin.Hold(vgpu.Hold{Assignment: share(holder, "n1", "GPU-n1-1", 2)}); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a pod without vGPUs beside a hold", func() { d.on("n1", "cpu-4", 0, "1", "1Gi") }, true},
		{"a nominated pod", func() { nominated = d.add(pod("nominated", 1), "n1") }, false},
		{"a pod without vGPUs beside a nominated one", func() { d.on("n1", "cpu-6", 0, "1", "1Gi") }, false},
		{"it is nominated no more", func() { d.remove(nominated, "n1") }, false},
		{"a stray pod", func() {
			d.add(with(pod("stray", 1), func(p *v1.Pod) { p.Spec.NodeName = "n1" }), "n1")
		}, false},
		{"a pod without vGPUs beside a stray one", func() { d.on("n1", "cpu-5", 0, "1", "1Gi") }, false},
	}
	for _, step := range steps {
		step.do()
		info := d.byName["n1"]
		if got := n1.withRoom(info) != nil; got != step.same {
			t.Errorf("%s: the ledger serves again: %v, want %v", step.what, got, step.same)
		}
		d.preFilter(pod("asker", 1))
		o, anew := n1.fresh(info), d.plugin.state.build(n1, info)
		if o == nil {
			t.Fatalf("%s: the occupancy is stale after PreFilter", step.what)
		}
		if diff := cmp.Diff(contents(anew), contents(o)); diff != "" {
			t.Errorf("%s: the occupancy differs from one built anew:\n%s", step.what, diff)
		}
	}
}

// contents is what an occupancy says, in words.
func contents(o *occupancy) []string {
	words := []string{o.problem, fmt.Sprint(o.held, o.stray, o.strays, o.ledger.Room())}
	for i, d := range o.ledger.Devices() {
		words = append(words, fmt.Sprintf("%s used %v free %v", d.ID, o.ledger.Used(i), o.ledger.FreeFor(i, &vgpu.Request{})))
	}
	for _, a := range o.ledger.Assignments() {
		words = append(words, fmt.Sprint(a))
	}
	return words
}
