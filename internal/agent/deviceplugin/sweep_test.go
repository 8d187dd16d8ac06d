package deviceplugin

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/test/must"
)

// A round in which nothing changed ends early; any of the things that it looks at makes it a full one again, and so does
// time.
func TestRoundsWithoutNewsEndEarly(t *testing.T) {
	b := newBench(t)
	a := b.run()
	pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
	b.kubelet.admit(pod)
	must.OK(t, b.kubelet.begin(pod, "main"))
	fixture.Eventually(t, "the pod", func() error {
		if pods, _, err := a.podWatch.Snapshot(); err != nil || pods[pod.UID] == nil {
			return errors.New("not known yet")
		}
		return nil
	})
	fixture.Eventually(t, "quiet devices", func() error { // the guards have looked at them
		devices, _ := a.inventory.Snapshot()
		for i := range devices {
			if devices[i].Sick != nil || b.mps.Ready(t.Context(), devices[i].ID) != nil {
				return errors.New("not yet")
			}
		}
		return nil
	})
	s := a.sweeper()
	now := time.Now()
	full := func() bool {
		t.Helper()
		now = now.Add(time.Second)
		full, err := s.Sweep(t.Context(), now)
		must.OK(t, err)
		return full
	}
	if !full() {
		t.Fatal("the first round is not a full one")
	}
	settled := func(what string) {
		t.Helper()
		if full() {
			t.Errorf("%s: a round without news is a full one", what)
		}
	}
	settled("at rest")
	path := filepath.Join(b.cdiDir(), "tandem-gpu.io-vgpu_"+b.kubelet.cdiName(pod, "main")+".json")
	sound, err := os.ReadFile(path)
	must.OK(t, err)
	must.OK(t, os.Remove(path))
	if !full() {
		t.Error("a spec that is gone is no news")
	}
	must.OK(t, os.WriteFile(path, sound, 0o600))
	if !full() {
		t.Error("a spec that is there again is no news")
	}
	settled("after the spec")
	b.kubelet.change(string(pod.UID), func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })
	fixture.Eventually(t, "a full round after a change of the pod", func() error {
		if !full() {
			return errors.New("none")
		}
		return nil
	})
	settled("after the pod")
	const unused = "feedfeedfeedfeed"
	must.OK(t, a.binder.Records.Allocated(map[string][]string{unused: {allocation.SlotID(fixture.G1, 9)}}, time.Now().Add(24*time.Hour)))
	other := fixture.Placed(t, "other", fixture.App(fixture.G1, 3))
	b.kubelet.give(other, "main", []string{allocation.SlotID(fixture.G1, 0), allocation.SlotID(fixture.G1, 1), allocation.SlotID(fixture.G1, 2)}) // writes the checkpoint
	if !full() {
		t.Error("a new checkpoint of the kubelet is no news")
	}
	if !full() {
		t.Error("a name that waits to be forgotten is not looked at")
	}
	must.OK(t, a.binder.Records.Update(func(d *allocation.Data) { delete(d.Names, unused) }))
	full()
	settled("after the name")
	b.driver.set(fixture.G1, &inventory.Sickness{Reason: "XID79", Message: "gone"})
	fixture.Eventually(t, "a full round after a change of a device", func() error {
		if !full() {
			return errors.New("none")
		}
		return nil
	})
	b.driver.set(fixture.G1, nil)
	fixture.Eventually(t, "rest", func() error {
		if full() {
			return errors.New("news again and again")
		}
		return nil
	})
	now = now.Add(time.Minute)
	if !full() {
		t.Error("no full round for a minute")
	}
}

// The kubelet's checkpoint is parsed again each time that the kubelet has written it, and only then.
func TestHoldingsAreThoseOfTheLastCheckpoint(t *testing.T) {
	b := newBench(t)
	b.run()
	f := &allocation.File{Path: b.kubelet.checkpointPath()}
	for i, name := range []string{"one", "two", "three"} {
		b.kubelet.admit(fixture.Placed(t, name, fixture.App(fixture.G0, 1)))
		held, at, err := f.Read()
		if err != nil || len(held) != i+1 {
			t.Fatalf("%d holdings (%v) after %d pods", len(held), err, i+1)
		}
		if again, stamp, err := f.Read(); err != nil || stamp != at || &again[0] != &held[0] {
			t.Errorf("the same checkpoint was parsed again (%v)", err)
		}
	}
}
