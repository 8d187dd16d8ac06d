package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MaxSweptEntries is the number of files and folders that one sweep looks at. The tmpfs holds as many, so that a
	// sweep sees all of it, and still ends where tenants add and move files as fast as it looks. Larger takes longer in
	// that case alone.
	MaxSweptEntries = tmpfsInodes
	// heldFolders is how many folders, one below the other, the sweep keeps open. Programs make their files at the top of
	// /dev/shm or one or two folders below it. Larger costs descriptors, as many as a tenant likes up to this number.
	heldFolders = 32
)

// Swept is what a sweep of the shared memory removed, and what it had to leave although it is old enough.
type Swept struct {
	// Files counts removed files and folders, Bytes their bytes.
	Files int
	Bytes int64
	// UnjudgedFiles counts those whose users this process has no right to see, UnjudgedBytes their bytes.
	UnjudgedFiles int
	UnjudgedBytes int64
	// Cut says that there was more than MaxSweptEntries, so that the sweep did not see all.
	Cut bool
}

// SweepSharedMemory removes from a folder that tenants write to what was last changed before a time and what no process
// has open or mapped. The kernel decides: it grants a write lease on a file to its owner only while no other process
// has it open, in whatever container and by whatever descriptor or mapping (fcntl(2), F_SETLEASE). For the files of
// other users that takes CAP_LEASE, and CAP_DAC_OVERRIDE to open them. alone says that no tenant runs: then no process
// can use the files of other users than this process's.
//
// The folder may change meanwhile in any way: nothing in it leads the sweep out of it. The time that a sweep takes
// grows with the number of entries, up to MaxSweptEntries, and not with their depth. The sweep ends early when ctx
// does, with its error.
func SweepSharedMemory(ctx context.Context, dir string, before time.Time, alone bool) (Swept, error) {
	s := shmSweep{before: before, alone: alone, most: MaxSweptEntries, unlink: unix.Unlinkat}
	err := s.run(ctx, dir)
	return s.swept, err
}

// shmSweep goes through the folders by the kernel's handles and by single names, never by a path. The cost of a path
// grows with its length, and a tenant can put a link into it.
type shmSweep struct {
	before time.Time
	alone  bool
	most   int
	unlink func(dir int, name string, flags int) error

	// at is the folder that the sweep is in, last, below those that it came through.
	at     []shmFolder
	looked int
	swept  Swept
}

type shmFolder struct {
	name string
	id   fileID
	old  bool
	// dir is nil in the folders between the first heldFolders and the last one.
	dir *os.File
	// below are the folders in it that the sweep has not entered yet.
	below []shmFolder
}

// fileID identifies a file among all that exist.
type fileID struct{ device, inode uint64 }

func idOf(stat *unix.Stat_t) fileID { return fileID{device: stat.Dev, inode: stat.Ino} }

func bytesOf(stat *unix.Stat_t) int64 { return stat.Blocks * 512 }

// old reports whether the entry has not changed since.
func (s *shmSweep) old(stat *unix.Stat_t) bool {
	return time.Unix(stat.Ctim.Unix()).Before(s.before) && time.Unix(stat.Mtim.Unix()).Before(s.before)
}

func (s *shmSweep) run(ctx context.Context, dir string) error {
	top, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sweep shared memory: %w", err)
	}
	s.at = []shmFolder{{dir: top}}
	defer func() {
		for _, folder := range s.at {
			_ = folder.dir.Close() // nothing was written by this process
		}
	}()
	s.look(ctx, &s.at[0])
	for ctx.Err() == nil {
		here := &s.at[len(s.at)-1]
		switch n := len(here.below); {
		case n > 0 && !s.swept.Cut:
			next := here.below[n-1]
			here.below = here.below[:n-1]
			s.enter(ctx, here, next)
		case len(s.at) > 1:
			s.leave()
		default:
			return nil
		}
	}
	return fmt.Errorf("sweep shared memory: %w", ctx.Err())
}

// look judges the files of a folder, and notes the folders in it. look skips an entry that has vanished or that it
// cannot read.
func (s *shmSweep) look(ctx context.Context, folder *shmFolder) {
	names, _ := folder.dir.Readdirnames(s.most - s.looked + 1)
	slices.Sort(names)
	dir := int(folder.dir.Fd())
	for _, name := range names {
		if s.swept.Cut = s.looked == s.most; s.swept.Cut || ctx.Err() != nil {
			return
		}
		s.looked++
		var stat unix.Stat_t
		switch err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW); {
		case err != nil:
		case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
			folder.below = append(folder.below, shmFolder{name: name, id: idOf(&stat), old: s.old(&stat)})
		case s.old(&stat):
			s.judge(dir, name, &stat)
		}
	}
}

// enter goes one folder down.
func (s *shmSweep) enter(ctx context.Context, here *shmFolder, next shmFolder) {
	next.dir = openFolder(here.dir, next.name, next.id)
	if next.dir == nil {
		s.removeFolder(here.dir, next) // an unreadable folder may be empty
		return
	}
	s.look(ctx, &next)
	if len(s.at) > heldFolders {
		_ = here.dir.Close()
		here.dir = nil
	}
	s.at = append(s.at, next)
}

// leave goes one folder up, and removes the folder that it came from if that is empty. A tenant may have moved that folder, so
// that ".." is another one, even one outside of the tmpfs. Then the sweep goes on in the lowest of the first heldFolders.
func (s *shmSweep) leave() {
	last := len(s.at) - 1
	left := s.at[last]
	s.at = s.at[:last]
	up := &s.at[last-1]
	if up.dir == nil {
		up.dir = openFolder(left.dir, "..", up.id)
	}
	_ = left.dir.Close()
	if up.dir != nil {
		s.removeFolder(up.dir, left)
		return
	}
	s.at = s.at[:heldFolders]
}

// openFolder opens the folder of a name if it is the expected one, and else returns nil.
func openFolder(from *os.File, name string, id fileID) *os.File {
	fd, err := unix.Openat(int(from.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	dir := os.NewFile(uintptr(fd), name)
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil || idOf(&stat) != id {
		_ = dir.Close()
		return nil
	}
	return dir
}

// judge removes a file that no process has open, as far as this process may know. judge removes the name before it
// closes the descriptor, with which the lease ends. A process that opens the file in between waits until then, or gets
// an error.
func (s *shmSweep) judge(dir int, name string, seen *unix.Stat_t) {
	if fd, err := openRegular(dir, name, seen); err == nil {
		defer func() { _ = unix.Close(fd) }()
		var now unix.Stat_t
		if unix.Fstat(fd, &now) != nil || idOf(&now) != idOf(seen) {
			return // another file has the name: the next sweep looks at it
		}
		switch _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); {
		case err == nil:
			s.removeFile(dir, name, seen)
			return
		case errors.Is(err, unix.EAGAIN):
			return // a process has it open
		}
	}
	if s.alone && int(seen.Uid) != os.Geteuid() {
		s.removeFile(dir, name, seen)
		return
	}
	s.swept.UnjudgedFiles++
	s.swept.UnjudgedBytes += bytesOf(seen)
}

// openRegular opens a file of the kind that the kernel leases.
func openRegular(dir int, name string, seen *unix.Stat_t) (int, error) {
	if seen.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, unix.EINVAL
	}
	return unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// removeFile takes the name away, unless another file has it by now or the file was changed.
func (s *shmSweep) removeFile(dir int, name string, seen *unix.Stat_t) {
	var now unix.Stat_t
	if unix.Fstatat(dir, name, &now, unix.AT_SYMLINK_NOFOLLOW) != nil || idOf(&now) != idOf(seen) || !s.old(&now) {
		return
	}
	if s.unlink(dir, name, 0) == nil {
		s.swept.Files++
		s.swept.Bytes += bytesOf(&now)
	}
}

// removeFolder takes the name of a folder away, which the kernel allows only if it is empty. The folder's age is that from
// before the sweep removed what was in it.
func (s *shmSweep) removeFolder(parent *os.File, folder shmFolder) {
	var now unix.Stat_t
	dir := int(parent.Fd())
	if !folder.old || unix.Fstatat(dir, folder.name, &now, unix.AT_SYMLINK_NOFOLLOW) != nil || idOf(&now) != folder.id {
		return
	}
	if s.unlink(dir, folder.name, unix.AT_REMOVEDIR) == nil {
		s.swept.Files++
	}
}
