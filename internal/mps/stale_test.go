package mps

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestKilledDaemonIsStartedAgain(t *testing.T) {
	n := newNode(t)
	pid := n.ensure()
	keep := n.pipe("keep.txt")
	if err := os.WriteFile(keep, []byte("not ours"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.kill(pid)
	// A daemon that is killed leaves its socket and its PID file.
	for _, name := range []string{"control", "nvidia-cuda-mps-control.pid"} {
		if _, err := os.Lstat(n.pipe(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.mps.Ready(t.Context(), n.uuid); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Ready: %v, want %v", err, ErrNotRunning)
	}
	if again := n.ensure(); again == pid {
		t.Errorf("daemon is still process %d", pid)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a file that is not MPS's was removed: %v", err)
	}
}

func TestCleanRefusesWhileSomethingLives(t *testing.T) {
	t.Run("daemon", func(t *testing.T) {
		n := newNode(t)
		pid := n.ensure()
		if err := os.Remove(n.pipe("control")); err != nil {
			t.Fatal(err)
		}
		if err := n.mps.Ensure(t.Context(), DeviceSpec{UUID: n.uuid}); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("Ensure: %v, want %v", err, ErrNoAnswer)
		}
		if n.pid() != pid || !isMPS(pid) {
			t.Errorf("daemon %d was disturbed", pid)
		}
	})
	t.Run("socket", func(t *testing.T) {
		n := newNode(t)
		listen(t, n.pipe("control"))
		if err := n.control().clean(); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("clean: %v, want %v", err, ErrNoAnswer)
		}
		if _, err := os.Lstat(n.pipe("control")); err != nil {
			t.Error(err)
		}
	})
}

func listen(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

func TestRecordedPIDOfAnotherProgramIsDead(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.pipe(""), 0o755); err != nil {
		t.Fatal(err)
	}
	// The number was used again, by this test.
	if err := os.WriteFile(n.pipe("nvidia-cuda-mps-control.pid"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	n.ensure()
}

func TestDaemonOfAnotherDeviceIsNotAdopted(t *testing.T) {
	n := newNode(t)
	other := n.control()
	other.uuid = "GPU-of-somebody-else"
	for _, dir := range []string{other.pipe, other.log} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := n.mps.Ensure(t.Context(), DeviceSpec{UUID: n.uuid})
	if err == nil || !strings.Contains(err.Error(), other.uuid) {
		t.Errorf("Ensure: %v, want an error that names %s", err, other.uuid)
	}
}
