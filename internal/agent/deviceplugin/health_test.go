package deviceplugin

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestAllSlotsOfAnUnhealthyDeviceFlipAndComeBack(t *testing.T) {
	b := newBench(t)
	b.run()
	updates := b.kubelet.told()
	b.driver.set(fixture.G1, errors.New("GPU is lost"))
	b.kubelet.awaitSlots(10, 10)
	for _, d := range b.kubelet.watched() {
		if device, _, _ := allocation.ParseSlotID(d.ID); (device == fixture.G1) != (d.Health == "Unhealthy") {
			t.Errorf("slot %s is %s", d.ID, d.Health)
		}
	}
	if n := b.kubelet.told() - updates; n != 1 {
		t.Errorf("%d updates, want 1: all slots at once", n)
	}
	b.awaitMetric(`tandem_agent_devices{health="unhealthy"}`, "1")
	b.awaitMetric(`tandem_agent_slots{device="`+fixture.G1+`",state="unhealthy"}`, "10")
	b.driver.set(fixture.G1, nil)
	b.kubelet.awaitSlots(20, 0)
}

func TestUnhealthyDeviceStartsNothing(t *testing.T) {
	b := newBench(t)
	b.run()
	pod := fixture.Placed(t, "train",
		fixture.Want{Name: "fetch", Kind: vgpu.Init, Devices: []string{fixture.G1}, Slots: 3},
		fixture.Want{Name: "main", Kind: vgpu.App, Devices: []string{fixture.G1}, Slots: 3})
	b.kubelet.admit(pod)
	if err := b.kubelet.begin(pod, "fetch"); err != nil { // writes the spec of main too: it holds the same slots
		t.Fatal(err)
	}
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) {
		p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "fetch", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	})
	b.driver.set(fixture.G1, &inventory.Sickness{Reason: "CriticalXID", Message: "XID 79"})
	fixture.Eventually(t, "removal", func() error {
		_, err := b.spec(pod, "main")
		return absent(err)
	})
	if _, err := b.spec(pod, "fetch"); err != nil {
		t.Errorf("spec of the container that runs: %v", err)
	}
	err := b.kubelet.begin(pod, "main")
	for _, text := range []string{"team/train", "g1", fixture.G1, "CriticalXID", "XID 79"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("start on a sick device: %v, want a refusal that says %q", err, text)
		}
	}
	b.kubelet.awaitSlots(10, 10) // else the slots below may be those from before the sickness
	b.driver.set(fixture.G1, nil)
	b.kubelet.awaitSlots(20, 0)
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Errorf("start after the recovery: %v", err)
	}
}

func TestStartWaitsForMPS(t *testing.T) {
	b := newBench(t)
	b.mps.set(fixture.G0, errors.New("the control daemon is starting"))
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	done := make(chan error, 1)
	go func() { done <- b.kubelet.begin(pod, "main") }()
	fixture.Eventually(t, "attempt", func() error {
		b.mps.mu.Lock()
		defer b.mps.mu.Unlock()
		if b.mps.ensured[fixture.G0] == 0 {
			return errors.New("nobody has tried to start MPS")
		}
		return nil
	})
	select {
	case err := <-done:
		t.Fatalf("the start did not wait for MPS: %v", err)
	default:
	}
	b.mps.set(fixture.G0, nil)
	if err := <-done; err != nil {
		t.Errorf("after MPS has come up: %v", err)
	}
}

// shortWait is a wait for MPS that the tests sit out, and in which a busy machine has an answer of MPS all the same.
const shortWait = 10 * time.Second

// awaitMPS waits until the agent has tried to start MPS on both devices: the fake then says of each what the test wants.
func (b *bench) awaitMPS() {
	b.t.Helper()
	for _, id := range []string{fixture.G0, fixture.G1} {
		fixture.Eventually(b.t, "attempt to start MPS of "+id, func() error {
			b.mps.mu.Lock()
			defer b.mps.mu.Unlock()
			if b.mps.ensured[id] == 0 {
				return errors.New("none")
			}
			return nil
		})
	}
}

// begins starts a container that must start: at once or, on a machine so busy that a short wait ends before, at a later try.
func (b *bench) begins(what string, pod *v1.Pod) {
	b.t.Helper()
	fixture.Eventually(b.t, what, func() error { return b.kubelet.begin(pod, "main") })
}

func TestStartIsRefusedWhileMPSIsDown(t *testing.T) {
	t.Parallel() // it waits
	b := newBench(t)
	b.timing.sharingWait = shortWait
	b.mps.set(fixture.G0, errors.New("nvidia-cuda-mps-control not found"))
	b.run()
	b.awaitMPS()
	pod, other := fixture.Placed(t, "train", fixture.App(fixture.G0, 3)), fixture.Placed(t, "other", fixture.App(fixture.G1, 3))
	b.kubelet.admit(pod)
	b.kubelet.admit(other)
	err := b.kubelet.begin(pod, "main")
	for _, text := range []string{"team/train", "g0", "nvidia-cuda-mps-control not found"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("start without MPS: %v, want a refusal that says %q", err, text)
		}
	}
	b.awaitMetric(`tandem_agent_prestart_failures_total{reason="MPSNotReady"}`, "1")
	b.begins("the device whose MPS is up", other)
}

// A device whose MPS does not even answer holds up its own containers no longer than it may, and no others.
func TestStartGivesUpOnSilentMPS(t *testing.T) {
	t.Parallel() // it waits
	b := newBench(t)
	b.timing.sharingWait = shortWait
	b.mps.silent = map[string]chan struct{}{fixture.G0: make(chan struct{})}
	defer func() { close(b.mps.silent[fixture.G0]) }()
	b.run()
	pod, other := fixture.Placed(t, "train", fixture.App(fixture.G0, 3)), fixture.Placed(t, "other", fixture.App(fixture.G1, 3))
	b.kubelet.admit(pod)
	b.kubelet.admit(other)
	if err := b.kubelet.begin(pod, "main"); err == nil || !strings.Contains(err.Error(), "not answered") {
		t.Errorf("start on the silent device: %v, want a refusal", err)
	}
	b.begins("start on the other device", other)
}

func TestDevicesBeforeVoltaAreUsedWithoutMPS(t *testing.T) {
	b := newBench(t)
	b.driver.gpus[1].ComputeMajor = 6
	b.mps.set(fixture.G0, errors.New("never asked"))
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	if err := b.kubelet.begin(pod, "main"); err != nil {
		t.Fatal(err)
	}
	s, err := b.spec(pod, "main")
	if err != nil || len(s.Edits.Env) != 2 || len(s.Edits.Mounts) != 0 {
		t.Errorf("edits %+v (%v), want the device without limits", s.Edits, err)
	}
}

func TestMissingDeviceFileIsSaid(t *testing.T) {
	b := newBench(t)
	b.driver.gpus[1].Minor = 9
	b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	if err := b.kubelet.begin(pod, "main"); err == nil || !strings.Contains(err.Error(), "dev/nvidia9") {
		t.Errorf("start without a device file: %v, want an error that names it", err)
	}
}
