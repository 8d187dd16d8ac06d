package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestPlacements: pods on 120 nodes, 2,000 by the policy tandem and 500 by the others, get the same nodes and devices from the scheduler and from the simulator. Half
// of them leave again; more arrive than there is room for; some ask for models, for device memory, for no GPU at all. With
// more than 100 nodes the plugin's shortlist is at work. All nodes have GPUs: among nodes without, where pods without GPUs
// go first, the framework's other plugins choose.
func TestPlacements(t *testing.T) {
	for _, policy := range placement.Policies() {
		t.Run(policy, func(t *testing.T) {
			n := 500
			if policy == "tandem" {
				n = 2000
			}
			h := follow(t, mixed(t, n), policy)
			if n == 2000 && (h.Count(sim.Dropped) < 100 || h.Count(sim.Finished) < 500 || h.Count(sim.Running) < 500) {
				t.Errorf("the workload is not what this test is about: %d dropped, %d ended, %d run", h.Count(sim.Dropped),
					h.Count(sim.Finished), h.Count(sim.Running))
			}
		})
	}
}

// start plays a setup in the simulator, and starts a scheduler with the same nodes, policy and usual requests.
func start(t *testing.T, s sim.Setup, policy string) (*sim.History, *rig) {
	t.Helper()
	var err error
	if s.Policy, err = placement.ByName(policy); err != nil {
		t.Fatal(err)
	}
	h, err := sim.Run(s)
	must.OK(t, err)
	return h, newRig(t, s.Nodes, func(args *config.GPUShareArgs) {
		args.Policy, args.Seed, args.PodsWithoutGPUs = policy, s.Seed, config.ScorePods
		args.TypicalRequests = typicalRequests(s.Mix)
	})
}

// podName makes a UID of a simulated pod one that is a name of a pod, too.
func podName(uid string) vgpu.UID { return vgpu.UID(strings.ReplaceAll(uid, "#", "-")) }

// follow plays a setup through both, and fails at the first pod on which they disagree.
func follow(t *testing.T, s sim.Setup, policy string) *sim.History {
	t.Helper()
	h, r := start(t, s, policy)
	var running []int
	for i := range s.Jobs {
		running = r.end(&s, running, s.Jobs[i].Arrive)
		got, refusal := r.submit(pod(&s.Jobs[i]))
		want := &h.Outcomes[i]
		if want.State.Placed() != (refusal == "") || where(&want.Assignment) != where(&got) {
			t.Fatalf("pod %d, %s, %+v: the simulator places it on %q, the scheduler on %q%s", i, want.Pod, s.Jobs[i].Request,
				where(&want.Assignment), where(&got), refusal)
		}
		if refusal == "" && s.Jobs[i].Duration > 0 {
			running = append(running, i)
		}
	}
	return h
}

// end deletes the pods that end up to now, and returns the others.
func (r *rig) end(s *sim.Setup, running []int, now time.Duration) []int {
	r.t.Helper()
	var still []int
	for _, i := range running {
		if j := &s.Jobs[i]; j.Arrive+j.Duration <= now {
			r.remove(string(j.Request.UID))
		} else {
			still = append(still, i)
		}
	}
	return still
}

// where names the node, and the devices of each container.
func where(a *vgpu.Assignment) string {
	text := a.Node
	for _, c := range a.Containers {
		text += fmt.Sprintf(" %s%v×%d", c.Name, c.Devices, c.Share.Slots)
	}
	return text
}

func typicalRequests(m *fragmentation.Mix) []config.TypicalRequest {
	var all []config.TypicalRequest
	for _, k := range m.Kinds() {
		all = append(all, config.TypicalRequest{
			CPU: *resource.NewMilliQuantity(k.MilliCPU, resource.DecimalSI), Memory: *resource.NewQuantity(int64(k.Memory), resource.BinarySI),
			VGPU: int64(k.Slots), VGPUMemory: *resource.NewQuantity(int64(k.DeviceMemory), resource.BinarySI), Models: split(k.Models), Weight: k.Weight,
		})
	}
	return all
}

// TestDisagreementIsSeen: the comparison is not blind.
func TestDisagreementIsSeen(t *testing.T) {
	a := vgpu.Assignment{Node: "n1", Containers: []vgpu.ContainerAssignment{{Name: "main", Devices: []vgpu.DeviceID{"g0"}}}}
	b := a
	b.Containers = []vgpu.ContainerAssignment{{Name: "main", Devices: []vgpu.DeviceID{"g1"}}}
	if where(&a) == where(&b) || !cmp.Equal(where(&a), where(&a)) {
		t.Errorf("%q and %q", where(&a), where(&b))
	}
}

// mixed returns a cluster of unlike nodes and n pods, a second apart.
func mixed(t *testing.T, n int) sim.Setup {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 7))
	s := sim.Setup{Queue: sim.Drop, Seed: 7}
	for _, g := range []struct {
		name  string
		count int
		cores int64
		gpus  int
		model vgpu.Device
	}{
		{"a100", 50, 96, 8, vgpu.Device{Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB}},
		{"fine", 30, 64, 4, vgpu.Device{Model: "H100", Slots: 1000, Memory: 80 * vgpu.GiB}},
		{"t4", 40, 32, 2, vgpu.Device{Model: "T4", Slots: 4, Memory: 16 * vgpu.GiB}},
	} {
		for i := range g.count {
			s.Nodes = append(s.Nodes, newNode(t, fmt.Sprintf("%s-%02d", g.name, i), g.cores, g.gpus, g.model))
		}
	}
	var kinds []fragmentation.Kind
	for i := range n {
		j := sim.Job{Request: draw(random), Arrive: time.Duration(i) * time.Second}
		j.Request.UID = vgpu.UID(fmt.Sprintf("p%04d", i))
		j.Request.Pod = "default/" + string(j.Request.UID)
		if random.IntN(2) == 0 {
			// Between two arrivals, and long after the pod came: the plugin has surely seen it bound.
			j.Duration = time.Duration(30+random.IntN(600))*time.Second - time.Second/2
		}
		s.Jobs = append(s.Jobs, j)
		kinds = append(kinds, fragmentation.KindOf(&j.Request))
	}
	mix, err := fragmentation.NewMix(kinds)
	must.OK(t, err)
	s.Mix = mix
	return s
}

func newNode(t *testing.T, name string, cores int64, gpus int, d vgpu.Device) *vgpu.Node {
	t.Helper()
	var devices []vgpu.Device
	for k := range gpus {
		d.ID, d.Index, d.Healthy = vgpu.DeviceID(fmt.Sprintf("GPU-%s-%d", name, k)), k, true
		devices = append(devices, d)
	}
	n, err := vgpu.NewNode(name, devices)
	must.OK(t, err)
	n.SetRoom(vgpu.Room{MilliCPU: cores * 1000, Memory: vgpu.Bytes(cores) * 4 * vgpu.GiB})
	return n
}

// draw draws what a pod asks for.
func draw(random *rand.Rand) vgpu.Request {
	pick := func(of ...int) int { return of[random.IntN(len(of))] }
	cores := pick(1, 2, 4, 8)
	r := vgpu.Request{Host: vgpu.Room{MilliCPU: int64(cores) * 1000, Memory: vgpu.Bytes(cores*pick(1, 4)) * vgpu.GiB}}
	if random.IntN(8) == 0 {
		return r
	}
	c := vgpu.ContainerRequest{Name: "main", Slots: vgpu.Slots(pick(1, 2, 3, 5, 5, 8, 10, 10, 20, 40, 80, 250, 460, 1000, 4000))}
	if c.Slots < 10 && random.IntN(5) == 0 {
		c.Memory = vgpu.Bytes(pick(2, 6, 12, 20)) * vgpu.GiB
	}
	r.Containers = []vgpu.ContainerRequest{c}
	switch random.IntN(6) {
	case 0:
		r.Variants = []vgpu.Variant{{Model: "A100"}}
	case 1:
		r.Variants = []vgpu.Variant{{Model: "A100"}, {Model: "T4"}}
	}
	return r
}

func split(models string) []string {
	if models == "" {
		return nil
	}
	return strings.Split(models, "|")
}
