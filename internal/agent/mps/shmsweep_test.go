package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tandem-gpu/tandem/test/must"
)

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
	must.OK(t, err)
	slices.Sort(left)
	return left
}

// A sweep removes what nobody has open or mapped and what was last changed before a time, and nothing else.
func TestSweepOfSharedMemory(t *testing.T) {
	dir, outside := tmpfs(t, "16Mi"), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"left", "open-to-read", "open-to-write", "mapped", "d/left", "d/e/left", "f/open"} {
		must.OK(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
		must.OK(t, fill(t, at(name), 8192))
	}
	must.OK(t, fill(t, filepath.Join(outside, "host"), 1))
	must.OK(t, errors.Join(os.Symlink(outside, at("away")), os.Symlink(filepath.Join(outside, "host"), at("link"))))
	hold := func(name string, flag int) *os.File {
		file, err := os.OpenFile(at(name), flag, 0)
		must.OK(t, err)
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	hold("open-to-read", os.O_RDONLY)
	hold("open-to-write", os.O_RDWR)
	hold("f/open", os.O_RDONLY)
	file := hold("mapped", os.O_RDWR)
	memory, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	must.OK(t, err)
	defer func() { _ = syscall.Munmap(memory) }()
	_ = file.Close()

	everything := names(t, dir)
	if swept, err := SweepSharedMemory(t.Context(), dir, time.Now().Add(-time.Minute), false); err != nil || swept != (Swept{}) {
		t.Errorf("swept %+v, %v, want nothing: all is younger", swept, err)
	}
	if diff := cmp.Diff(everything, names(t, dir)); diff != "" {
		t.Errorf("young files (-want +got):\n%s", diff)
	}
	// The links are not judged: no lease is given on them, and this user may have made them.
	swept, err := SweepSharedMemory(t.Context(), dir, time.Now().Add(time.Minute), true)
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

// The sweep leaves other users' files of which it may not know enough, until no tenant lives.
func TestSweepOfOthersFiles(t *testing.T) {
	dir := tmpfs(t, "16Mi")
	sub := filepath.Join(dir, "fifo")
	must.OK(t, unix.Mkfifo(sub, 0o600))
	must.OK(t, os.Chown(sub, 1000, 1000))
	later := time.Now().Add(time.Minute)
	if swept, err := SweepSharedMemory(t.Context(), dir, later, false); err != nil || swept != (Swept{UnjudgedFiles: 1}) {
		t.Errorf("swept %+v, %v, want one that is not judged", swept, err)
	}
	if swept, err := SweepSharedMemory(t.Context(), dir, later, true); err != nil || swept != (Swept{Files: 1}) {
		t.Errorf("swept %+v, %v, want one that is removed", swept, err)
	}
}

// chain makes folders one below the other, and a file in the last one.
func chain(t *testing.T, dir string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
		must.OK(t, err)
		above := fd
		err = unix.Mkdirat(above, "d", 0o755)
		if err == nil {
			fd, err = unix.Openat(above, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		_ = unix.Close(above)
	}
	must.OK(t, err)
	file, err := unix.Openat(fd, "left", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	must.OK(t, err)
	if _, err := unix.Write(file, []byte("x")); err != nil {
		t.Fatal(err)
	}
	must.OK(t, errors.Join(unix.Close(file), unix.Close(fd)))
}

// A tenant cannot hold the sweep up with deep folders. One that went down by paths would take many minutes here, since the
// cost of a path grows with its length, and the test would run into its limit.
func TestSweepOfDeepFolders(t *testing.T) {
	dir := tmpfs(t, "16Mi")
	const depth = 60_000
	chain(t, dir, depth)
	swept, err := SweepSharedMemory(t.Context(), dir, time.Now().Add(time.Minute), false)
	if want := (Swept{Files: depth + 1, Bytes: 4096}); err != nil || swept != want {
		t.Errorf("swept %+v, %v, want %+v", swept, err, want)
	}
}

// sweepOf is a sweep of all that nobody has open, which calls a function before it removes a name.
func sweepOf(most int, removing func(dir int, name string)) *shmSweep {
	unlink := func(dir int, name string, flags int) error {
		removing(dir, name)
		return unix.Unlinkat(dir, name, flags)
	}
	return &shmSweep{before: time.Now().Add(time.Minute), most: most, unlink: unlink}
}

// A folder that a tenant moves while the sweep is in it has another one above it, which may be one of the host.
func TestSweepOfFoldersThatMove(t *testing.T) {
	dir := tmpfs(t, "16Mi")
	// A sweep that goes wrong looks for this name in all folders above, up to that of the whole machine: no other has it.
	beside := fmt.Sprintf("beside-%s-%d", t.Name(), os.Getpid())
	host := filepath.Join(filepath.Dir(dir), beside, "host")
	chain(t, dir, heldFolders+10)
	at := func(depth int) string { return filepath.Join(dir, strings.Repeat("d/", depth)) }
	// The sweep takes the names of a folder from the last one on, so that these come after the "d" beside them.
	err := errors.Join(os.Mkdir(filepath.Dir(host), 0o755), os.WriteFile(host, nil, 0o600))
	for depth := range heldFolders + 9 {
		err = errors.Join(err, os.Mkdir(filepath.Join(at(depth), beside), 0o755))
	}
	must.OK(t, err)
	s := sweepOf(MaxSweptEntries, func(_ int, name string) {
		if name == "left" {
			if err := os.Rename(at(heldFolders+8), filepath.Join(dir, "moved")); err != nil {
				t.Error(err)
			}
		}
	})
	if err := s.run(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(host); err != nil {
		t.Errorf("the sweep left the folder: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, beside)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want that the sweep went on above the folders that moved", err)
	}
	if _, err := SweepSharedMemory(t.Context(), dir, time.Now().Add(time.Minute), false); err != nil {
		t.Error(err)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("the next sweep left %q", left)
	}
}

// A sweep that meets its bound says so, and the next one goes on with what is left.
func TestSweepOfMoreThanItsBound(t *testing.T) {
	dir := tmpfs(t, "16Mi")
	for i := range 7 {
		must.OK(t, fill(t, filepath.Join(dir, fmt.Sprint(i)), 1))
	}
	for _, want := range []Swept{{Files: 3, Cut: true}, {Files: 3, Cut: true}, {Files: 1}, {}} {
		s := sweepOf(3, func(int, string) {})
		want.Bytes = int64(want.Files) * 4096
		if err := s.run(t.Context(), dir); err != nil || s.swept != want {
			t.Errorf("swept %+v, %v, want %+v", s.swept, err, want)
		}
	}
}

// An agent that ends does not wait for its sweep.
func TestSweepThatIsCancelled(t *testing.T) {
	dir := tmpfs(t, "16Mi")
	for _, name := range []string{"a", "b"} {
		chain(t, dir, 2)
		must.OK(t, os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, name)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := sweepOf(MaxSweptEntries, func(int, string) { cancel() })
	if err := s.run(ctx, dir); !errors.Is(err, context.Canceled) || s.swept.Files != 1 {
		t.Errorf("swept %+v, %v, want one file and then %v", s.swept, err, context.Canceled)
	}
}

// A process waits or is refused if it opens a file after the look whether somebody has it open, and before its name is
// gone.
func TestSweepHoldsTheLeaseWhileItRemoves(t *testing.T) {
	dir := tmpfs(t, "16Mi")
	must.OK(t, fill(t, filepath.Join(dir, "left"), 1))
	var opened []error
	s := sweepOf(MaxSweptEntries, func(dir int, name string) {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		opened = append(opened, err)
	})
	err := s.run(t.Context(), dir)
	if err != nil || s.swept.Files != 1 || !slices.Equal(opened, []error{unix.EWOULDBLOCK}) {
		t.Errorf("swept %+v, %v; opened in between: %v, want %v once", s.swept, err, opened, unix.EWOULDBLOCK)
	}
}
