package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Swept is what a sweep of the shared memory removed, and what it had to leave although it is old enough.
type Swept struct {
	// Files and folders that were removed, and their bytes.
	Files int
	Bytes int64
	// UnjudgedFiles are those of which this process may not know whether somebody uses them, and their bytes.
	UnjudgedFiles int
	UnjudgedBytes int64
}

// SweepSharedMemory removes from a folder that tenants write to what was last changed before a time and what no process has
// open or mapped. The kernel says so: it grants a write lease on a file to its owner only while nobody else has it open,
// in whatever container and by whatever descriptor or mapping (fcntl(2), F_SETLEASE). For the files of other users that
// takes CAP_LEASE, and CAP_DAC_OVERRIDE to open them. Alone says that no tenant lives: then nobody can use the files of
// other users than this process's.
//
// The folder may change meanwhile in any way: no link in it leads the sweep out of it.
func SweepSharedMemory(dir string, before time.Time, alone bool) (Swept, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Swept{}, fmt.Errorf("sweep shared memory: %w", err)
	}
	defer func() { _ = root.Close() }() // it was only read
	s := shmSweep{root: root, before: before, alone: alone}
	err = fs.WalkDir(root.FS(), ".", s.visit)
	// The deepest first: a folder is empty once what was in it is gone.
	for _, folder := range slices.Backward(s.folders) {
		if root.Remove(folder) == nil {
			s.swept.Files++
		}
	}
	if err != nil {
		return s.swept, fmt.Errorf("sweep shared memory: %w", err)
	}
	return s.swept, nil
}

type shmSweep struct {
	root    *os.Root
	before  time.Time
	alone   bool
	swept   Swept
	folders []string
}

// visit looks at one entry. What has vanished or cannot be read is passed over.
func (s *shmSweep) visit(name string, entry fs.DirEntry, err error) error {
	if err != nil {
		if entry != nil && entry.IsDir() && name != "." {
			return fs.SkipDir
		}
		return err
	}
	info, err := entry.Info()
	if err != nil || name == "." {
		return nil //nolint:nilerr // it has vanished
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !s.old(stat) {
		return nil
	}
	if entry.IsDir() {
		s.folders = append(s.folders, name)
		return nil
	}
	free, known := s.unused(name, info)
	switch {
	case !known && s.alone && int(stat.Uid) != os.Geteuid():
		s.remove(name, info, stat)
	case !known:
		s.swept.UnjudgedFiles++
		s.swept.UnjudgedBytes += bytesOf(stat)
	case free:
		s.remove(name, info, stat)
	}
	return nil
}

// old reports whether nothing of the entry was changed since.
func (s *shmSweep) old(stat *syscall.Stat_t) bool {
	return time.Unix(stat.Ctim.Unix()).Before(s.before) && time.Unix(stat.Mtim.Unix()).Before(s.before)
}

func bytesOf(stat *syscall.Stat_t) int64 { return stat.Blocks * 512 }

// unused reports whether nobody has the file open, as far as this process may know.
func (s *shmSweep) unused(name string, info fs.FileInfo) (free, known bool) {
	if !info.Mode().IsRegular() {
		return false, false // the kernel leases regular files only
	}
	file, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, false
	}
	defer func() { _ = file.Close() }() // with it the lease ends
	if now, err := file.Stat(); err != nil || !os.SameFile(now, info) {
		return false, true // another file has the name: it is looked at the next time
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false, false
	}
	if e := raw.Control(func(fd uintptr) { _, err = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_WRLCK) }); e != nil {
		return false, false
	}
	switch {
	case err == nil:
		return true, true
	case errors.Is(err, unix.EAGAIN):
		return false, true
	}
	return false, false
}

// remove takes the name away, unless another file has it by now.
func (s *shmSweep) remove(name string, info fs.FileInfo, stat *syscall.Stat_t) {
	now, err := s.root.Lstat(path.Clean(name))
	if err != nil || !os.SameFile(now, info) || s.root.Remove(name) != nil {
		return
	}
	s.swept.Files++
	s.swept.Bytes += bytesOf(stat)
}
