package deviceplugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestAgentIdlesWithoutADriver(t *testing.T) {
	b := newBench(t)
	client := b.api()
	var there atomic.Bool
	var tries atomic.Int32
	b.open = func() (Driver, error) {
		tries.Add(1)
		if !there.Load() {
			return nil, errors.New("libnvidia-ml.so.1 not found")
		}
		return b.driver, nil
	}
	a := b.launch()
	g := b.awaitReady(metav1.ConditionFalse, v1alpha1.ReadyNoDriver)
	if len(g.Status.Devices) != 0 || !strings.Contains(g.Status.Conditions[0].Message, "libnvidia-ml.so.1") {
		t.Errorf("status %+v", g.Status)
	}
	for page, want := range map[string]int{"/readyz": 503, "/healthz": 200, "/metrics": 200} {
		code, body := b.get(page)
		if code != want || page == "/readyz" && !strings.Contains(body, "NoDriver: libnvidia-ml.so.1") {
			t.Errorf("%s: %d %s", page, code, body)
		}
	}
	fixture.Eventually(t, "more tries", func() error {
		if tries.Load() < 4 {
			return errors.New("few")
		}
		return nil
	})
	writes := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == "update" {
			writes++
		}
	}
	if writes != 1 || b.kubelet.registered() != 0 {
		t.Errorf("%d writes and %d registrations while nothing changes, want 1 and 0", writes, b.kubelet.registered())
	}
	there.Store(true)
	fixture.Eventually(t, "registration", a.ready)
	b.kubelet.awaitSlots(20, 0)
	b.awaitReady(metav1.ConditionTrue, v1alpha1.ReadyServing)
}

func TestIdleAgentEnds(t *testing.T) {
	b := newBench(t)
	b.api()
	b.open = func() (Driver, error) { return nil, errors.New("not loaded") }
	b.launch()
	b.awaitReady(metav1.ConditionFalse, v1alpha1.ReadyNoDriver)
	if err := b.stop(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	b.awaitReady(metav1.ConditionFalse, v1alpha1.ReadyStopping)
}

func TestDriverThatHangsAtTheStart(t *testing.T) {
	b := newBench(t)
	b.api()
	b.timing.driver = 2 * time.Second // a busy machine needs a part of it
	hang := make(chan struct{})
	b.open = func() (Driver, error) { <-hang; return b.driver, nil }
	b.launch()
	g := b.awaitReady(metav1.ConditionFalse, v1alpha1.ReadyNoDriver)
	if !strings.Contains(g.Status.Conditions[0].Message, "has not answered for 2s") {
		t.Errorf("status %+v", g.Status)
	}
	close(hang)
	b.kubelet.awaitSlots(20, 0)
}

func TestDaemonsOnExit(t *testing.T) {
	for policy, want := range map[string]int{"": 0, "keep": 0, "quit": 1} {
		t.Run(policy, func(t *testing.T) {
			b := newBench(t)
			b.config.MPS.OnExit = policy
			b.mps.clients[fixture.G1] = []int{11}
			b.run()
			fixture.Eventually(t, "MPS", func() error { return b.mps.Ready(t.Context(), fixture.G0) })
			fixture.Eventually(t, "MPS", func() error { return b.mps.Ready(t.Context(), fixture.G1) })
			must.OK(t, b.stop())
			if b.mps.stopped[fixture.G0] != want || b.mps.stopped[fixture.G1] != 0 {
				t.Errorf("stopped %v, want %d for g0, which serves nobody, and none for g1, which does", b.mps.stopped, want)
			}
		})
	}
}

// fill makes the file system of the folder one that is full.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("mounting a small file system needs root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	rest := filepath.Join(dir, "rest")
	if err := os.WriteFile(rest, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the file system is not full: %v", err)
	}
	return func() { _ = os.Remove(rest) }
}

// On a full disk no container starts, nothing is forgotten, and the message says where there is no room.
func TestFullDiskUnderTheCheckpoint(t *testing.T) {
	b := newBench(t)
	b.run()
	first, second := fixture.Placed(t, "first", fixture.App(fixture.G0, 6)), fixture.Placed(t, "second", fixture.App(fixture.G0, 5))
	third := fixture.Placed(t, "third", fixture.App(fixture.G1, 2))
	b.kubelet.admit(first)
	b.kubelet.admit(second)
	b.kubelet.admit(third)
	must.OK(t, b.kubelet.begin(first, "main"))
	checkpoint, err := os.ReadFile(filepath.Join(b.stateDir(), "checkpoint.json"))
	must.OK(t, err)
	empty := fill(t, b.stateDir())
	for range 3 {
		err := b.kubelet.begin(third, "main")
		for _, text := range []string{"team/third", "no space left on device", "--state-dir", b.stateDir()} {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("start on a full disk: %v, want a refusal that says %q", err, text)
			}
		}
	}
	if err := b.kubelet.begin(first, "main"); err != nil {
		t.Errorf("a restart of what runs needs no room: %v", err)
	}
	if err := b.kubelet.begin(second, "main"); err == nil || !strings.Contains(err.Error(), "does not fit") {
		t.Errorf("what was granted before is forgotten: %v", err)
	}
	empty()
	must.OK(t, os.WriteFile(filepath.Join(b.stateDir(), "checkpoint.json"), checkpoint, 0o600))
	if err := b.kubelet.begin(third, "main"); err != nil {
		t.Errorf("after room was made: %v", err)
	}
}
