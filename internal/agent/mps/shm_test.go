package mps

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tandem-gpu/tandem/test/must"
)

// tmpfs mounts shared memory of a size, where this user may.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shm")
	err := MountSharedMemory(dir, size)
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting a tmpfs needs root with CAP_SYS_ADMIN, which this user is not")
	}
	must.OK(t, err)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func fill(t *testing.T, path string, bytes int) error {
	t.Helper()
	return os.WriteFile(path, make([]byte, bytes), 0o600)
}

// Tenants together can fill what the tmpfs has, and nothing of the host.
func TestSharedMemoryHasASize(t *testing.T) {
	dir := tmpfs(t, "16Mi")
	must.OK(t, fill(t, filepath.Join(dir, "a"), 10<<20))
	if err := fill(t, filepath.Join(dir, "b"), 10<<20); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("20 MiB in 16 MiB: %v, want that no space is left", err)
	}
	usage, err := SharedMemoryUsage(dir)
	if err != nil || usage.Size != 16<<20 || usage.Used != 16<<20 {
		t.Errorf("usage %+v, %v, want 16 MiB of 16 MiB", usage, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("mode %v, %v, want that of /tmp", info.Mode(), err)
	}
}

// A pod that is replaced mounts again: the files stay, and the size is the new one where what is in use allows it.
func TestSharedMemoryIsMountedOnce(t *testing.T) {
	dir := tmpfs(t, "16Mi")
	must.OK(t, fill(t, filepath.Join(dir, "a"), 10<<20))
	must.OK(t, MountSharedMemory(dir, "32Mi"))
	if err := fill(t, filepath.Join(dir, "b"), 20<<20); err != nil {
		t.Error(err)
	}
	if err := MountSharedMemory(dir, "16Mi"); !errors.Is(err, ErrInUse) {
		t.Errorf("shrinking below what is in use: %v, want %v", err, ErrInUse)
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	must.OK(t, unix.Unmount(dir, 0))
	if source, err := mountedAt(dir); source != "" || err != nil {
		t.Errorf("a second mount lay below the first: %q, %v", source, err)
	}
	must.OK(t, unix.Mount("other", dir, "tmpfs", 0, "size=1m"))
	if err := MountSharedMemory(dir, "16Mi"); err == nil {
		t.Error("a mount of somebody else was covered")
	}
}

func TestTmpfsOptions(t *testing.T) {
	for size, want := range map[string]string{
		"10%": "mode=1777,nr_inodes=65536,size=10%", "16Mi": "mode=1777,nr_inodes=65536,size=16777216", "8G": "mode=1777,nr_inodes=65536,size=8000000000",
		"0%": "", "51%": "", "%": "", "-1": "", "15Mi": "", "much": "", "": "", "10%,exec": "", "8Gi,uid=0": "",
	} {
		got, err := tmpfsOptions(size)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("size %q: %q, %v, want %q", size, got, err, want)
		}
	}
}
