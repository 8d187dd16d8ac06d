package deviceplugin

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// isExclusive reports the compute mode of a device.
func (d *driver) isExclusive(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.exclusive[id]
}

func (b *bench) awaitMode(id string, exclusive bool) {
	b.t.Helper()
	eventually(b.t, "compute mode", func() error {
		if b.driver.isExclusive(id) != exclusive {
			return errors.New("not yet")
		}
		return nil
	})
}

// started lets a pod start and returns it.
func (b *bench) started(name string, c want) *v1.Pod {
	b.t.Helper()
	pod := placed(b.t, name, c)
	b.kubelet.admit(pod)
	if err := b.kubelet.begin(pod, "main"); err != nil {
		b.t.Fatal(err)
	}
	return pod
}

func TestExclusiveWhileSharesRun(t *testing.T) {
	b := newBench(t)
	b.config.MPS.ExclusiveProcess = true
	b.run()
	if b.driver.isExclusive(g0) || b.driver.isExclusive(g1) {
		t.Error("the mode is set although no share runs")
	}
	pod := b.started("train", app(g1, 3))
	if !b.driver.isExclusive(g1) || b.driver.isExclusive(g0) {
		t.Error("a share starts and the mode is not set on its device alone")
	}
	b.started("whole", app(g0, 10))
	if b.driver.isExclusive(g0) {
		t.Error("the mode is set under a container that has the device to itself")
	}
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	b.awaitMode(g1, false)
	again := b.started("shares-again", app(g1, 3))
	b.kubelet.remove(string(pod.UID))
	b.kubelet.remove(string(again.UID))
	b.started("then-whole", app(g1, 10)) // the mode must be back before it starts
	if b.driver.isExclusive(g1) {
		t.Error("a container with a whole device starts under the mode of the shares before it")
	}
}

func TestExclusiveIsPutBackAtTheEndAndAfterACrash(t *testing.T) {
	b := newBench(t)
	b.config.MPS.ExclusiveProcess = true
	b.run()
	b.started("train", app(g1, 3))
	record := filepath.Join(b.stateDir(), modesFile)
	crashed, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if b.driver.isExclusive(g1) {
		t.Error("the mode stays when the agent ends")
	}
	// A crash leaves the mode and the record; meanwhile the pod has gone.
	b.driver.exclusive[g1] = true
	if err := os.WriteFile(record, crashed, 0o600); err != nil {
		t.Fatal(err)
	}
	b.kubelet.remove("uid-train")
	b.run()
	b.awaitMode(g1, false)
}

func TestExclusiveModeOfTheOperatorStays(t *testing.T) {
	b := newBench(t)
	b.config.MPS.ExclusiveProcess = true
	b.driver.exclusive[g1] = true
	b.run()
	pod := b.started("train", app(g1, 3))
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if !b.driver.isExclusive(g1) {
		t.Error("a mode that the agent did not set is changed")
	}
}

// The mode is a net: a driver that refuses it holds up no share. Where it cannot be put back, a whole device is refused.
func TestExclusiveThatFails(t *testing.T) {
	b := newBench(t)
	b.config.MPS.ExclusiveProcess = true
	b.run()
	b.driver.mu.Lock()
	b.driver.modeError = errors.New("no permission")
	b.driver.mu.Unlock()
	b.started("train", app(g1, 3))
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	e := openExclusivity(t.Context(), b.driver, b.stateDir())
	e.set[g0] = true
	if err := e.release(g0); err == nil || len(e.held()) != 1 {
		t.Errorf("%v, held %v: what could not be put back must be remembered", err, e.held())
	}
}

func TestExclusiveRecordIsBroken(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, modesFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := openExclusivity(t.Context(), &driver{exclusive: map[string]bool{}}, dir)
	if len(e.held()) != 0 {
		t.Errorf("held %v", e.held())
	}
	if err := e.claim(g0); err != nil {
		t.Error(err)
	}
	if again := openExclusivity(t.Context(), e.driver, dir); len(again.held()) != 1 {
		t.Errorf("remembered %v", again.held())
	}
	e.path = filepath.Join(dir, "absent", modesFile)
	if err := e.claim(g1); err == nil || e.driver.(*driver).isExclusive(g1) {
		t.Errorf("%v: what cannot be remembered must not be set", err)
	}
}

// A refusal is an error in the log once, and again when it comes back: the net is not there.
func TestExclusiveSaysOnceThatItIsRefused(t *testing.T) {
	e := &exclusivity{refused: map[string]string{}}
	refusal := errors.New("no permission")
	for i, step := range []struct {
		err  error
		news bool
	}{{refusal, true}, {refusal, false}, {errors.New("lost"), true}, {nil, false}, {refusal, true}} {
		if got := e.isNews(g0, step.err); got != step.news {
			t.Errorf("step %d, %v: %t", i, step.err, got)
		}
	}
}
