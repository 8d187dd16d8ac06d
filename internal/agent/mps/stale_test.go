package mps

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tandem-gpu/tandem/test/must"
)

func TestKilledDaemonIsStartedAgain(t *testing.T) {
	n := newNode(t)
	pid := n.ensure()
	keep := n.pipe("keep.txt")
	must.OK(t, os.WriteFile(keep, []byte("not ours"), 0o644))
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
		must.OK(t, os.Remove(n.pipe("control")))
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
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.Listen("unix", path)
	must.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
}

func TestRecordedPIDOfAnotherProgramIsDead(t *testing.T) {
	n := newNode(t)
	must.OK(t, os.MkdirAll(n.pipe(""), 0o755))
	// The number was used again, by this test.
	must.OK(t, os.WriteFile(n.pipe("nvidia-cuda-mps-control.pid"), []byte(strconv.Itoa(os.Getpid())), 0o644))
	n.ensure()
}

func TestDaemonOfAnotherDeviceIsNotAdopted(t *testing.T) {
	n := newNode(t)
	other := n.control()
	other.uuid = "GPU-of-somebody-else"
	for _, dir := range []string{other.pipe, other.log} {
		must.OK(t, os.MkdirAll(dir, 0o755))
	}
	must.OK(t, other.start(t.Context()))
	err := n.mps.Ensure(t.Context(), DeviceSpec{UUID: n.uuid})
	if err == nil || !strings.Contains(err.Error(), other.uuid) {
		t.Errorf("Ensure: %v, want an error that names %s", err, other.uuid)
	}
}

// A dead daemon or somebody else left files in the pipe directory, in forms that it never has.
func TestStalePipeDirectory(t *testing.T) {
	for name, test := range map[string]struct {
		make func(*node) error
		says string
	}{
		"plain files":      {func(n *node) error { return os.WriteFile(n.pipe("control"), []byte("x"), 0o600) }, ""},
		"pipe":             {func(n *node) error { return syscall.Mkfifo(n.pipe("log"), 0o600) }, ""},
		"dangling link":    {func(n *node) error { return os.Symlink("/nowhere", n.pipe("control")) }, ""},
		"record of no PID": {func(n *node) error { return os.WriteFile(n.pipe(pidName), []byte("-1\nx"), 0o600) }, ""},
		"full folder":      {func(n *node) error { return os.MkdirAll(n.pipe("control/x"), 0o755) }, "remove the leftovers"},
		"file as directory": {func(n *node) error {
			return errors.Join(os.Remove(n.pipe("")), os.WriteFile(filepath.Clean(n.pipe("")), nil, 0o600))
		}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			must.OK(t, os.MkdirAll(n.pipe(""), 0o755))
			must.OK(t, test.make(n))
			for what, call := range map[string]error{"Ensure": n.mps.Ensure(t.Context(), n.spec()), "Recycle": n.mps.Recycle(t.Context(), n.spec())} {
				if test.says == "" && call != nil || test.says != "" && (call == nil || !strings.Contains(call.Error(), test.says)) {
					t.Errorf("%s: %v, want %q", what, call, test.says)
				}
			}
		})
	}
}

// On a full disk no daemon starts, and the error says why. When there is room again all is well.
func TestFullDisk(t *testing.T) {
	n := newNode(t)
	must.OK(t, os.MkdirAll(filepath.Join(n.dir, "mps"), 0o755))
	if err := syscall.Mount("none", filepath.Join(n.dir, "mps"), "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("this process may not mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(filepath.Join(n.dir, "mps"), syscall.MNT_DETACH) })
	filler := filepath.Join(n.dir, "mps", "filler")
	if err := os.WriteFile(filler, make([]byte, 128<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	for what, call := range map[string]func() error{
		"Recycle": func() error { return n.mps.Recycle(t.Context(), n.spec()) },
		"Ensure":  func() error { return n.mps.Ensure(t.Context(), n.spec()) },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("%s: %v, want the reason", what, err)
		}
	}
	must.OK(t, os.Remove(filler))
	n.recycle(n.mps)
}
