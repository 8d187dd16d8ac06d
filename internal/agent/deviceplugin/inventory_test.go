package deviceplugin

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/health"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// A device that comes back under another index is the same device: its containers get its new file.
func TestLostDeviceComesBackElsewhere(t *testing.T) {
	b := newBench(t)
	b.api()
	b.timing.rescan = time.Hour // a device that comes back has the driver asked at once
	b.run()
	b.driver.set(fixture.G1, &inventory.Sickness{Reason: string(nvml.Lost), Message: "fallen off the bus"})
	b.driver.list(fixture.GPU(fixture.G0, 0, 5))
	b.kubelet.awaitSlots(10, 10)
	b.driver.list(fixture.GPU(fixture.G0, 1, 3), fixture.GPU(fixture.G1, 0, 5)) // they have changed places
	b.driver.set(fixture.G1, nil)
	b.kubelet.awaitSlots(20, 0)
	b.awaitDevice(fixture.G1, "index", func(d v1alpha1.GPUDevice) bool { return d.Index == 0 })
	pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
	b.kubelet.admit(pod)
	must.OK(t, b.kubelet.begin(pod, "main"))
	s, err := b.spec(pod, "main")
	if err != nil || !strings.HasSuffix(s.Edits.Devices[0].Host, "/nvidia5") {
		t.Errorf("device files %+v (%v), want nvidia5", s.Edits.Devices, err)
	}
}

func TestNewDevicesAreOffered(t *testing.T) {
	b := newBench(t)
	b.api()
	b.run()
	const g2 = "GPU-22222222-2222-2222-2222-222222222222"
	b.driver.set(g2, errors.New("not yet"))
	b.driver.list(fixture.GPU(fixture.G0, 0, 5), fixture.GPU(fixture.G1, 1, 3), fixture.GPU(g2, 2, 7))
	b.kubelet.awaitSlots(20, 10)
	b.driver.set(g2, nil)
	b.kubelet.awaitSlots(30, 0)
	b.driver.want(g2, health.RecoveryReset)                                     // the sickness lasts until it is seen
	b.driver.log(t, health.XID{Device: g2, Number: 95, Class: health.XIDReset}) // the watch knows it
	b.kubelet.awaitSlots(20, 10)
	b.driver.mu.Lock()
	defer b.driver.mu.Unlock()
	if b.driver.watches < 2 {
		t.Error("the watch was not started again for the new device")
	}
}

func TestMIGInstancesComeAndGo(t *testing.T) {
	b := newBench(t)
	b.api()
	mig := func(id string, ci int) inventory.GPU {
		g := fixture.GPU(id, 10+ci, 3)
		g.Model, g.Parent, g.GI, g.CI = "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", fixture.G1, 1, ci
		return g
	}
	n := int32(4)
	b.config.Slots.Models = map[string]int32{"NVIDIA-A100-SXM4-40GB-MIG-3g.20gb": n}
	b.run()
	b.driver.list(fixture.GPU(fixture.G0, 0, 5), mig("MIG-a", 0), mig("MIG-b", 1)) // g1 is in MIG mode now
	b.kubelet.awaitSlots(18, 0)
	for _, id := range []string{"MIG-a", "MIG-b"} {
		b.driver.want(id, health.RecoveryReset) // the sickness lasts until it is seen
	}
	b.driver.log(t, health.XID{Device: fixture.G1, Number: 48, Class: health.XIDReset}) // its error is that of its instances
	b.awaitReason("MIG-a", "XID48")
	b.awaitReason("MIG-b", "XID48")
	for _, id := range []string{"MIG-a", "MIG-b"} {
		b.driver.want(id, health.RecoveryNone)
	}
	b.kubelet.awaitSlots(18, 0)
	b.driver.list(fixture.GPU(fixture.G0, 0, 5), mig("MIG-b", 1))
	b.kubelet.awaitSlots(14, 0)
	fixture.Eventually(t, "end of the daemons", func() (err error) {
		b.mps.change(func() {
			if b.mps.stopped[fixture.G1] != 1 || b.mps.stopped["MIG-a"] != 1 || b.mps.stopped["MIG-b"] != 0 {
				err = fmt.Errorf("stopped %v", b.mps.stopped)
			}
		})
		return err
	})
}

// A round of the sweeper outlives the end of a device in its midst, and reports those that are left.
func TestDeviceGoesDuringARound(t *testing.T) {
	b := newBench(t)
	mig := func(id string, ci int) inventory.GPU {
		g := fixture.GPU(id, ci, 3)
		g.Parent, g.GI, g.CI = fixture.G1, 1, ci
		return g
	}
	whole := fixture.GPU(fixture.G0, 2, 5)
	a := b.run()
	b.driver.list(mig("MIG-a", 0), mig("MIG-b", 1), whole)
	b.kubelet.awaitSlots(30, 0)
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	must.OK(t, b.kubelet.begin(pod, "main"))
	held := func(id string) string { return fmt.Sprintf("tandem_agent_slots{device=%q,state=\"held\"}", id) }
	b.awaitMetric(held(fixture.G0), "3")
	must.OK(t, os.WriteFile(b.kubelet.checkpointPath(), []byte("{"), 0o600))
	s, gone := a.sweeper(), false
	s.Unreadable = func() { // the round calls it after it has looked at the devices
		b.driver.list(mig("MIG-b", 1), whole)
		fixture.Eventually(t, "the end of MIG-a", func() error {
			if devices, _ := a.inventory.Snapshot(); len(devices) != 2 {
				return fmt.Errorf("%d devices", len(devices))
			}
			return nil
		})
		gone = true
	}
	if full, err := s.Sweep(t.Context(), time.Now()); err != nil || !full || !gone {
		t.Errorf("round: full %v, device gone %v, %v", full, gone, err)
	}
	for id, want := range map[string]string{fixture.G0: "3", "MIG-b": "0"} {
		if have := b.metric(held(id)); have != want {
			t.Errorf("%s is %q, want %s", held(id), have, want)
		}
	}
}

// On a node of the largest size, the calls that the kubelet waits for stay quick.
func TestManySlots(t *testing.T) {
	b := newBench(t)
	n := int32(100)
	b.config.Slots.Default = &n
	b.driver.gpus = nil
	for i := range 8 {
		b.driver.gpus = append(b.driver.gpus, fixture.GPU(fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i), i, i))
	}
	start := time.Now()
	a := b.launch()
	fixture.Eventually(t, "registration", a.ready)
	b.kubelet.awaitSlots(800, 0)
	t.Logf("800 slots are with the kubelet %v after the start", time.Since(start))
	start = time.Now()
	b.driver.set(b.driver.gpus[3].ID, &inventory.Sickness{Reason: string(nvml.Lost)})
	b.kubelet.awaitSlots(700, 100)
	t.Logf("100 of them are unhealthy %v after their device was lost; looks are %v apart", time.Since(start), b.timing.health)
}
