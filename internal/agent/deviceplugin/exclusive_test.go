package deviceplugin

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/test/must"
)

// isExclusive reports the compute mode of a device.
func (d *driver) isExclusive(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.exclusive[id]
}

func (b *bench) awaitMode(id string, exclusive bool) {
	b.t.Helper()
	fixture.Eventually(b.t, "compute mode", func() error {
		if b.driver.isExclusive(id) != exclusive {
			return errors.New("not yet")
		}
		return nil
	})
}

// started lets a pod start and returns it.
func (b *bench) started(name string, c fixture.Want) *v1.Pod {
	b.t.Helper()
	pod := fixture.Placed(b.t, name, c)
	b.kubelet.admit(pod)
	must.OK(b.t, b.kubelet.begin(pod, "main"))
	return pod
}

func TestExclusiveWhileSharesRun(t *testing.T) {
	b := newBench(t)
	b.config.MPS.ExclusiveProcess = true
	b.run()
	if b.driver.isExclusive(fixture.G0) || b.driver.isExclusive(fixture.G1) {
		t.Error("the mode is set although no share runs")
	}
	pod := b.started("train", fixture.App(fixture.G1, 3))
	if !b.driver.isExclusive(fixture.G1) || b.driver.isExclusive(fixture.G0) {
		t.Error("a share starts and the mode is not set on its device alone")
	}
	b.started("whole", fixture.App(fixture.G0, 10))
	if b.driver.isExclusive(fixture.G0) {
		t.Error("the mode is set under a container that has the device to itself")
	}
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	b.awaitMode(fixture.G1, false)
	again := b.started("shares-again", fixture.App(fixture.G1, 3))
	b.kubelet.remove(string(pod.UID))
	b.kubelet.remove(string(again.UID))
	b.started("then-whole", fixture.App(fixture.G1, 10)) // the mode must be back before it starts
	if b.driver.isExclusive(fixture.G1) {
		t.Error("a container with a whole device starts under the mode of the shares before it")
	}
}

func TestExclusiveIsPutBackAtTheEndAndAfterACrash(t *testing.T) {
	b := newBench(t)
	b.config.MPS.ExclusiveProcess = true
	b.run()
	b.started("train", fixture.App(fixture.G1, 3))
	record := filepath.Join(b.stateDir(), "compute-modes.json")
	crashed, err := os.ReadFile(record)
	must.OK(t, err)
	must.OK(t, b.stop())
	if b.driver.isExclusive(fixture.G1) {
		t.Error("the mode stays when the agent ends")
	}
	// A crash leaves the mode and the record; meanwhile the pod has gone.
	b.driver.exclusive[fixture.G1] = true
	must.OK(t, os.WriteFile(record, crashed, 0o600))
	b.kubelet.remove("uid-train")
	b.run()
	b.awaitMode(fixture.G1, false)
}

func TestExclusiveModeOfTheOperatorStays(t *testing.T) {
	b := newBench(t)
	b.config.MPS.ExclusiveProcess = true
	b.driver.exclusive[fixture.G1] = true
	b.run()
	pod := b.started("train", fixture.App(fixture.G1, 3))
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	must.OK(t, b.stop())
	if !b.driver.isExclusive(fixture.G1) {
		t.Error("a mode that the agent did not set is changed")
	}
}

// The mode is a net: a driver that refuses it holds up no share. If it cannot be put back, a whole device is refused.
func TestExclusiveThatFails(t *testing.T) {
	b := newBench(t)
	b.config.MPS.ExclusiveProcess = true
	b.run()
	b.driver.mu.Lock()
	b.driver.modeError = errors.New("no permission")
	b.driver.mu.Unlock()
	b.started("train", fixture.App(fixture.G1, 3))
	must.OK(t, b.stop())
}
