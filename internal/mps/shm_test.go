package mps

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// tmpfs mounts shared memory of a size, where this user may.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shm")
	err := MountSharedMemory(dir, size)
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting a tmpfs needs root with CAP_SYS_ADMIN, which this user is not")
	}
	if err != nil {
		t.Fatal(err)
	}
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
	if err := fill(t, filepath.Join(dir, "a"), 10<<20); err != nil {
		t.Fatal(err)
	}
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
	if err := fill(t, filepath.Join(dir, "a"), 10<<20); err != nil {
		t.Fatal(err)
	}
	if err := MountSharedMemory(dir, "32Mi"); err != nil {
		t.Fatal(err)
	}
	if err := fill(t, filepath.Join(dir, "b"), 20<<20); err != nil {
		t.Error(err)
	}
	if err := MountSharedMemory(dir, "16Mi"); !errors.Is(err, ErrInUse) {
		t.Errorf("shrinking below what is in use: %v, want %v", err, ErrInUse)
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if source, err := mountedAt(dir); source != "" || err != nil {
		t.Errorf("a second mount lay below the first: %q, %v", source, err)
	}
	if err := unix.Mount("other", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
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

// names returns what is left.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			left = append(left, path[len(dir)+1:])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(left)
	return left
}

// A sweep removes what nobody has open or mapped and what was last changed before a time, and nothing else.
func TestSweepOfSharedMemory(t *testing.T) {
	dir, outside := tmpfs(t, "16Mi"), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"left", "open-to-read", "open-to-write", "mapped", "d/left", "d/e/left", "f/open"} {
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := fill(t, at(name), 8192); err != nil {
			t.Fatal(err)
		}
	}
	if err := fill(t, filepath.Join(outside, "host"), 1); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(outside, at("away")), os.Symlink(filepath.Join(outside, "host"), at("link"))); err != nil {
		t.Fatal(err)
	}
	hold := func(name string, flag int) *os.File {
		file, err := os.OpenFile(at(name), flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	hold("open-to-read", os.O_RDONLY)
	hold("open-to-write", os.O_RDWR)
	hold("f/open", os.O_RDONLY)
	file := hold("mapped", os.O_RDWR)
	memory, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(memory) }()
	_ = file.Close()

	everything := names(t, dir)
	if swept, err := SweepSharedMemory(dir, time.Now().Add(-time.Minute), false); err != nil || swept != (Swept{}) {
		t.Errorf("swept %+v, %v, want nothing: all is younger", swept, err)
	}
	if diff := cmp.Diff(everything, names(t, dir)); diff != "" {
		t.Errorf("young files (-want +got):\n%s", diff)
	}
	// The links are not judged: no lease is given on them, and this user may have made them.
	swept, err := SweepSharedMemory(dir, time.Now().Add(time.Minute), true)
	if want := (Swept{Files: 5, Bytes: 3 * 8192, UnjudgedFiles: 2}); err != nil || swept != want {
		t.Errorf("swept %+v, %v, want %+v", swept, err, want)
	}
	want := []string{"away", "f", "f/open", "link", "mapped", "open-to-read", "open-to-write"}
	if diff := cmp.Diff(want, names(t, dir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(outside, "host")); err != nil {
		t.Errorf("the sweep left the folder: %v", err)
	}
}

// What the sweep may not know of other users' files it leaves, until no tenant lives.
func TestSweepOfOthersFiles(t *testing.T) {
	dir := tmpfs(t, "16Mi")
	sub := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(sub, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(sub, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute)
	if swept, err := SweepSharedMemory(dir, later, false); err != nil || swept != (Swept{UnjudgedFiles: 1}) {
		t.Errorf("swept %+v, %v, want one that is not judged", swept, err)
	}
	if swept, err := SweepSharedMemory(dir, later, true); err != nil || swept != (Swept{Files: 1}) {
		t.Errorf("swept %+v, %v, want one that is removed", swept, err)
	}
}
