package main

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
)

const gib = 1 << 30

// sound is a report in which all is well: a share of 3 of 10 slots, two whole devices, a refusal.
func sound() *report {
	dev := func(node, id string, index int) device {
		return device{node, vgpu.Device{ID: vgpu.DeviceID(id), Index: index, Model: "A100", Slots: 10, Memory: 40 * gib, Healthy: true}}
	}
	part := &observed{workload: workload{name: "part", containers: alone(3)}, uid: "u1", phase: v1.PodRunning,
		assignment: vgpu.Assignment{UID: "u1", Node: "n1", Containers: []vgpu.ContainerAssignment{{
			Name: "main", Devices: []vgpu.DeviceID{"A"},
			Share: vgpu.Share{Devices: 1, Slots: 3, Memory: 12 * gib, ComputeLimit: 300, MemoryLimit: 12 * gib},
		}}}}
	whole := &observed{workload: workload{name: "whole", containers: alone(20)}, uid: "u2", phase: v1.PodRunning,
		assignment: vgpu.Assignment{UID: "u2", Node: "n2", Containers: []vgpu.ContainerAssignment{{
			Name: "main", Devices: []vgpu.DeviceID{"B", "C"},
			Share: vgpu.Share{Devices: 2, Slots: 10, Memory: 40 * gib, ComputeLimit: 1000, MemoryLimit: 40 * gib},
		}}}}
	return &report{
		devices: []device{dev("n1", "A", 0), dev("n2", "C", 0), dev("n2", "B", 1)},
		pods:    map[string]*observed{"part": part, "whole": whole},
		order:   []string{"part", "whole"},
		containers: []fakekubelet.Container{
			{UID: "u1", Name: "main", Slots: []string{"A::0", "A::1", "A::2"}, Devices: []string{"/dev/nvidia0", "/dev/nvidiactl"}, Env: []string{
				"NVIDIA_VISIBLE_DEVICES=A", "CUDA_VISIBLE_DEVICES=A", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=A=12288M"}},
			{UID: "u2", Name: "main", Slots: make([]string, 20), Devices: []string{"/dev/nvidia1", "/dev/nvidia0"},
				Env: []string{"NVIDIA_VISIBLE_DEVICES=B,C", "CUDA_VISIBLE_DEVICES=B,C"}},
		},
		refused: []answered{{refusal: refusal{workload: workload{name: "bad"}, want: []string{"legal"}}, message: "13 is not legal"}},
	}
}

func TestCheckAcceptsWhatIsSound(t *testing.T) {
	if problems := sound().check(); len(problems) > 0 {
		t.Error(errors.Join(problems...))
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	part := func(r *report) *vgpu.ContainerAssignment { return &r.pods["part"].assignment.Containers[0] }
	env := func(i int, value string) func(*report) {
		return func(r *report) { r.containers[0].Env[i] = value }
	}
	for name, c := range map[string]struct {
		change func(*report)
		want   string
	}{
		"a pod that does not run":           {func(r *report) { r.pods["part"].phase = v1.PodPending }, "pod part is Pending"},
		"no valid assignment":               {func(r *report) { r.pods["part"].broken = errors.New("forged") }, "pod part: forged"},
		"a container that never started":    {func(r *report) { r.containers = r.containers[1:] }, "never started"},
		"a container that nobody asked for": {func(r *report) { r.containers = append(r.containers, fakekubelet.Container{}) }, "3 containers started, want 2"},
		"more than the device has": {func(r *report) {
			r.pods["whole"].assignment.Containers[0].Devices = []vgpu.DeviceID{"A", "B"}
		}, "device n1/g0 holds 13 slots"},
		"more memory than the device has": {func(r *report) { part(r).Share.Memory = 41 * gib }, "holds 3 slots and 44023414784 bytes"},
		"another amount than asked for":   {func(r *report) { part(r).Share.Slots = 4 }, "holds 4 slots; main asked for 3"},
		"a device of another node":        {func(r *report) { r.pods["part"].assignment.Node = "n2" }, "node n2 has no device A"},
		"another device in the container": {env(0, "NVIDIA_VISIBLE_DEVICES=B"), "NVIDIA_VISIBLE_DEVICES is \"B\""},
		"another device for CUDA":         {env(1, "CUDA_VISIBLE_DEVICES=B"), "CUDA_VISIBLE_DEVICES is \"B\""},
		"another compute limit":           {env(2, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"), "PERCENTAGE is \"100\", want \"30\""},
		"more memory than assigned":       {env(3, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=A=12289M"), "want 12884901888 bytes"},
		"memory of another device":        {env(3, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=B=12288M"), "want 12884901888 bytes of A"},
		"no memory limit":                 {env(3, "NOTHING=1"), "want 12884901888 bytes"},
		"a limit on whole devices": {func(r *report) {
			r.containers[1].Env = append(r.containers[1].Env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50")
		}, "want \"\""},
		"another device file":                        {func(r *report) { r.containers[0].Devices[0] = "/dev/nvidia1" }, "device files are [/dev/nvidia1]"},
		"another number of slot IDs":                 {func(r *report) { r.containers[0].Slots = r.containers[0].Slots[:2] }, "gave it 2 slot IDs, want 3"},
		"a refusal without its reason":               {func(r *report) { r.refused[0].message = "no" }, "without the word \"legal\""},
		"a refusal by somebody else":                 {func(r *report) { r.refused[0].denied = true }, "denied true, want false"},
		"drift that the agents saw":                  {func(r *report) { r.drift = 1 }, "1 containers drift"},
		"an assignment without the pod's containers": {func(r *report) { r.pods["part"].assignment.Containers = nil }, "0 containers are assigned, want 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := sound()
			c.change(r)
			if got := errors.Join(r.check()...); got == nil || !strings.Contains(got.Error(), c.want) {
				t.Errorf("got %v, want %q", got, c.want)
			}
		})
	}
}

// An init container runs before the others: the device must bear the greater of both, not the sum.
func TestUseCountsPhases(t *testing.T) {
	r := sound()
	p := r.pods["part"]
	init := p.assignment.Containers[0]
	init.Kind, init.Share.Slots = vgpu.Init, 8
	p.assignment.Containers = append(p.assignment.Containers, init)
	if got := r.use(r.devices[0]).Slots; got != 8 {
		t.Errorf("8 in the init container, then 3: use is %d, want 8", got)
	}
}

// The workloads must fit whatever the policy: the sum of each GPU model stays within its nodes.
func TestWorkloadsFit(t *testing.T) {
	sum := map[string]int64{}
	for _, w := range workloads() {
		for _, a := range w.containers {
			sum[w.gpu] += a.slots
		}
	}
	if sum["a100"] > 40 || sum["t4"] > 16 || sum["a100"]+sum["t4"]+sum[""] > 56 {
		t.Errorf("slots asked for: %v; the nodes have 40 on a100, 16 on t4", sum)
	}
	for _, w := range workloads() {
		if w.kind.colour() == "" || w.why == "" || len(w.why) > 38 {
			t.Errorf("workload %s has no kind, or no reason that fits into 80 columns", w.name)
		}
	}
}
