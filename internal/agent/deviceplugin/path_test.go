package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestContainerGetsItsShare(t *testing.T) {
	b := newBench(t)
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
	b.kubelet.admit(pod)
	if _, err := b.spec(pod, "main"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("spec before the start: %v, want none", err)
	}
	must.OK(t, b.kubelet.begin(pod, "main"))
	got, err := b.spec(pod, "main")
	must.OK(t, err)
	dev := func(name string) cdi.DeviceNode {
		return cdi.DeviceNode{Host: filepath.Join(b.dir, "dev", name), Container: "/dev/" + name}
	}
	pipe := "/run/mps/" + fixture.G1 + "/pipe"
	want := cdi.Edits{
		Env: []string{
			"NVIDIA_VISIBLE_DEVICES=" + fixture.G1, "CUDA_VISIBLE_DEVICES=" + fixture.G1,
			"CUDA_MPS_PIPE_DIRECTORY=" + pipe,
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
			"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" + fixture.G1 + "=12288M", // 3 of 10 of 40 GiB
		},
		Devices: []cdi.DeviceNode{dev("nvidia3"), dev("nvidiactl"), {Host: filepath.Join(b.dir, "dev", "uvm"), Container: "/dev/nvidia-uvm"}}, // no nvidia-uvm-tools on this node
		Mounts:  []cdi.Mount{{Host: pipe, Container: pipe, Options: []string{"rw", "bind"}}},
	}
	if diff := cmp.Diff(want, got.Edits); diff != "" {
		t.Errorf("edits (-want +got):\n%s", diff)
	}
	b.awaitMetric(`tandem_agent_slots{device="`+fixture.G1+`",state="held"}`, "3")
	b.awaitMetric("tandem_agent_assignment_drift", "0")
	b.awaitMetric("tandem_agent_allocations_total", "1")
}

func TestWholeDevicesAreUsedWithoutMPS(t *testing.T) {
	b := newBench(t)
	b.run()
	b.mps.set(fixture.G0, errors.New("down"))
	pod := fixture.Placed(t, "big", fixture.Want{Name: "main", Devices: []string{fixture.G0, fixture.G1}, Slots: 10})
	b.kubelet.admit(pod)
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Fatalf("a pod that needs no MPS must not wait for it: %v", err)
	}
	s, err := b.spec(pod, "main")
	must.OK(t, err)
	if diff := cmp.Diff([]string{"NVIDIA_VISIBLE_DEVICES=" + fixture.G0 + "," + fixture.G1, "CUDA_VISIBLE_DEVICES=" + fixture.G0 + "," + fixture.G1}, s.Edits.Env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
	if len(s.Edits.Mounts) != 0 || s.Edits.Devices[0].Container != "/dev/nvidia5" || s.Edits.Devices[1].Container != "/dev/nvidia3" {
		t.Errorf("edits %+v, want both device files by minor number and no mount", s.Edits)
	}
}

// The app container is given the init container's slots again; each start finds its own container's share.
func TestInitContainersGetTheirOwnShare(t *testing.T) {
	b := newBench(t)
	b.run()
	pod := fixture.Placed(t, "prep",
		fixture.Want{Name: "fetch", Kind: vgpu.Init, Devices: []string{fixture.G0}, Slots: 1},
		fixture.Want{Name: "warm", Kind: vgpu.Init, Devices: []string{fixture.G1}, Slots: 3},
		fixture.Want{Name: "main", Kind: vgpu.App, Devices: []string{fixture.G0}, Slots: 3},
		fixture.Want{Name: "logger", Kind: vgpu.App, Devices: []string{fixture.G1}, Slots: 1})
	b.kubelet.admit(pod)
	warm, main := b.kubelet.entry(string(pod.UID), "warm"), b.kubelet.entry(string(pod.UID), "main")
	if !slices.Equal(idsOf(warm.DeviceIDs), idsOf(main.DeviceIDs)) {
		t.Fatalf("the kubelet gave %v and then %v: the test needs the same slots twice", warm.DeviceIDs, main.DeviceIDs)
	}
	for _, c := range []struct{ name, device string }{{"fetch", fixture.G0}, {"warm", fixture.G1}, {"main", fixture.G0}, {"logger", fixture.G1}} {
		if err := b.kubelet.begin(pod, c.name); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := b.visible(pod, c.name); got != c.device {
			t.Errorf("container %s sees %s, want %s", c.name, got, c.device)
		}
	}
	if b.kubelet.cdiName(pod, "warm") == b.kubelet.cdiName(pod, "main") {
		t.Error("two containers share a CDI name")
	}
	b.awaitMetric("tandem_agent_cdi_specs", "4")
	b.awaitMetric("tandem_agent_assignment_drift", "0")
}

func TestSwappedSlotsDoNoHarm(t *testing.T) {
	b := newBench(t)
	b.run()
	one, two := fixture.Placed(t, "one", fixture.App(fixture.G0, 3)), fixture.Placed(t, "two", fixture.App(fixture.G1, 3))
	// The kubelet admits in its own order: each pod holds slots of the other's device.
	b.kubelet.give(one, "main", []string{allocation.SlotID(fixture.G1, 0), allocation.SlotID(fixture.G1, 1), allocation.SlotID(fixture.G1, 2)})
	b.kubelet.give(two, "main", []string{allocation.SlotID(fixture.G0, 7), allocation.SlotID(fixture.G0, 8), allocation.SlotID(fixture.G0, 9)})
	for _, pod := range []*v1.Pod{two, one} {
		must.OK(t, b.kubelet.begin(pod, "main"))
	}
	if got := b.visible(one, "main"); got != fixture.G0 {
		t.Errorf("one sees %s, want %s", got, fixture.G0)
	}
	if got := b.visible(two, "main"); got != fixture.G1 {
		t.Errorf("two sees %s, want %s", got, fixture.G1)
	}
	b.awaitMetric("tandem_agent_cdi_specs", "2")
	b.awaitMetric("tandem_agent_assignment_drift", "0")
	b.awaitMetric(`tandem_agent_slots{device="`+fixture.G0+`",state="held"}`, "3")
}

func TestPreferredSlotsAreThoseOfTheAssignedDevice(t *testing.T) {
	b := newBench(t)
	b.run()
	early, late := fixture.Placed(t, "b-early", fixture.App(fixture.G1, 4)), fixture.Placed(t, "a-late", fixture.App(fixture.G0, 4))
	early.CreationTimestamp.Time = early.CreationTimestamp.Add(1e9)
	late.CreationTimestamp.Time = late.CreationTimestamp.Add(2e9)
	other := fixture.Placed(t, "other", fixture.App(fixture.G0, 2))
	b.kubelet.add(late, early, other)
	for _, pod := range []*v1.Pod{early, late} {
		b.kubelet.admit(pod)
		a, err := kube.AssignmentOf(pod)
		must.OK(t, err)
		for _, id := range idsOf(b.kubelet.entry(string(pod.UID), "main").DeviceIDs) {
			if device, _, _ := allocation.ParseSlotID(id); device != string(a.Containers[0].Devices[0]) {
				t.Errorf("pod %s was hinted to %s, assigned is %s", pod.Name, id, a.Containers[0].Devices[0])
			}
		}
	}
}

func TestStartsThatAreRefused(t *testing.T) {
	forged := func(change func(*v1.Pod)) *v1.Pod {
		pod := fixture.Placed(t, "victim", fixture.App(fixture.G0, 3))
		change(pod)
		return pod
	}
	copied := fixture.Placed(t, "donor", fixture.App(fixture.G0, 3)).Annotations
	cases := []struct {
		name   string
		pod    *v1.Pod
		slots  int
		reason string
		says   []string
	}{
		{"no assignment, another scheduler", func() *v1.Pod {
			pod := fixture.Unplaced("victim", fixture.App(fixture.G0, 3))
			pod.Spec.SchedulerName = "default-scheduler"
			return pod
		}(), 3, "NoAssignment", []string{"team/victim", "container main", `"default-scheduler"`, "spec.schedulerName"}},
		{"no assignment, nodeName set", fixture.Unplaced("victim", fixture.App(fixture.G0, 3)), 3, "NoAssignment", []string{"spec.nodeName"}},
		{"copied from another pod", forged(func(p *v1.Pod) { p.Annotations = copied }), 3, "AssignmentMismatch", []string{"uid-donor", "uid-victim"}},
		{"for another node", forged(func(p *v1.Pod) { replace(p, `"n1"`, `"n2"`) }), 3, "AssignmentMismatch", []string{"n2"}},
		{"more slots than asked for", forged(func(p *v1.Pod) { replace(p, `"slots":3`, `"slots":4`) }), 3, "AssignmentMismatch", []string{"4 slots", "3"}},
		{"more memory than the slots are worth", forged(func(p *v1.Pod) {
			replace(p, fmt.Sprint(12*fixture.GiB), fmt.Sprint(30*fixture.GiB))
		}), 3, "AssignmentMismatch", []string{fmt.Sprint(30 * fixture.GiB), fmt.Sprint(12 * fixture.GiB)}},
		{"more memory, behind a broken annotation", forged(func(p *v1.Pod) {
			replace(p, fmt.Sprint(12*fixture.GiB), fmt.Sprint(30*fixture.GiB))
			p.Annotations[v1alpha1.AnnotationMemoryLimit] = "plenty"
		}), 3, "AssignmentMismatch", []string{fmt.Sprint(30 * fixture.GiB), fmt.Sprint(12 * fixture.GiB)}},
		{"a device of another node", forged(func(p *v1.Pod) { replace(p, fixture.G0, "GPU-ffff") }), 3, "AssignmentMismatch", []string{"GPU-ffff"}},
		{"not JSON", forged(func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationAssignment] = "g0, please" }), 3, "AssignmentMismatch", []string{v1alpha1.AnnotationAssignment}},
		{"the kubelet handed out another number of slots", fixture.Placed(t, "victim", fixture.App(fixture.G0, 3)), 2, "AssignmentMismatch", []string{"3 slots", "handed out 2"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			refuses(t, c.pod, c.slots, c.reason, c.says)
		})
	}
}

// refuses starts the pod's container with so many slots of the kubelet's, and wants the agent to refuse it: with a message
// that says all the texts, without a spec, counted under the reason.
func refuses(t *testing.T, pod *v1.Pod, slots int, reason string, says []string) {
	t.Helper()
	b := newBench(t)
	b.run()
	b.kubelet.give(pod, "main", b.kubelet.free()[:slots])
	err := b.kubelet.begin(pod, "main")
	if err == nil {
		t.Fatal("the container may start")
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the message does not say %q:\n%v", text, err)
		}
	}
	if _, err := b.spec(pod, "main"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a spec is there: %v", err)
	}
	b.awaitMetric(`tandem_agent_prestart_failures_total{reason="`+reason+`"}`, "1")
}

func replace(pod *v1.Pod, from, to string) {
	raw := pod.Annotations[v1alpha1.AnnotationAssignment]
	if !strings.Contains(raw, from) {
		panic(fmt.Sprintf("%s does not hold %s", raw, from))
	}
	pod.Annotations = map[string]string{v1alpha1.AnnotationAssignment: strings.ReplaceAll(raw, from, to)}
}

// An assignment that is sound by itself is refused where the device is full: 6 + 5 of 10.
func TestDevicesAreNeverOverfull(t *testing.T) {
	b := newBench(t)
	b.run()
	first, second := fixture.Placed(t, "first", fixture.App(fixture.G0, 6)), fixture.Placed(t, "second", fixture.App(fixture.G0, 5))
	for _, pod := range []*v1.Pod{first, second} {
		b.kubelet.admit(pod)
	}
	for range 2 { // a container that starts again does not count twice
		must.OK(t, b.kubelet.begin(first, "main"))
	}
	if err := b.kubelet.begin(second, "main"); err == nil || !strings.Contains(err.Error(), "does not fit") {
		t.Errorf("the second pod: %v, want a refusal", err)
	}
	b.kubelet.change(string(first.UID), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	if err := b.kubelet.begin(second, "main"); err != nil {
		t.Errorf("after the first pod has ended: %v", err)
	}
}

func TestAssignmentCannotChangeAfterTheStart(t *testing.T) {
	b := newBench(t)
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	must.OK(t, b.kubelet.begin(pod, "main"))
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) { replace(p, fixture.G0, fixture.G1) })
	if err := b.kubelet.begin(pod, "main"); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("restart after the change: %v, want a refusal", err)
	}
	if got := b.visible(pod, "main"); got != fixture.G0 {
		t.Errorf("the container sees %s, want %s as before", got, fixture.G0)
	}
	b.awaitMetric("tandem_agent_assignment_drift", "1")
}

func TestUnheldSlotsStartNothing(t *testing.T) {
	b := newBench(t)
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	b.kubelet.remove(string(pod.UID))
	if err := b.kubelet.begin(pod, "main"); err == nil || !strings.Contains(err.Error(), "does not run on this node") {
		t.Errorf("a pod that is gone: %v, want a refusal", err)
	}
}

func TestFreshNameForEveryAllocation(t *testing.T) {
	b := newBench(t)
	b.run()
	var names []string
	for i := range 4 {
		pod := fixture.Placed(t, fmt.Sprintf("p%d", i), fixture.App(fixture.G0, 2))
		b.kubelet.admit(pod)
		names = append(names, b.kubelet.cdiName(pod, "main"))
	}
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != 4 {
		t.Errorf("names %v, want four different ones", names)
	}
}
