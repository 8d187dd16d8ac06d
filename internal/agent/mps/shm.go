package mps

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// tmpfsSource names the file system in the list of mounts, so that the agent recognises it.
	tmpfsSource = "tandem-shm"
	// tmpfsInodes bounds the number of files, which take memory of the kernel even when they are empty.
	tmpfsInodes = 1 << 16
	// leastTmpfs is room for a few clients of MPS.
	leastTmpfs = 16 << 20
	// mostPercent leaves the other half of the memory to everything that is no file of a tenant.
	mostPercent = 50
)

// MountSharedMemory mounts a tmpfs of its own for what MPS servers and clients share, with a size: "10%" of the memory
// or an amount such as "8Gi". On a second call the tmpfs gets the new size. The process needs the right to mount, and
// its folder must be visible on the host under the same path.
func MountSharedMemory(dir, size string) error {
	options, err := tmpfsOptions(size)
	if err != nil {
		return fmt.Errorf("mount shared memory: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("mount shared memory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount shared memory: %w", err)
	}
	source, err := mountedAt(dir)
	if err != nil {
		return fmt.Errorf("mount shared memory: %w", err)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	switch source {
	case "":
	case tmpfsSource:
		flags |= unix.MS_REMOUNT
	default:
		return fmt.Errorf("mount shared memory: %q is mounted at %s already: unmount it, or choose another folder", source, dir)
	}
	err = unix.Mount(tmpfsSource, dir, "tmpfs", flags, options)
	if source == tmpfsSource && errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("give the shared memory at %s the size %s: %w: more is in use, so it keeps its size", dir, size, ErrInUse)
	}
	if err != nil {
		return fmt.Errorf("mount shared memory at %s: %w", dir, err)
	}
	return nil
}

// ErrInUse says that the shared memory cannot become as small as it should.
var ErrInUse = errors.New("it cannot shrink")

// tmpfsOptions returns the mount options for a size.
func tmpfsOptions(size string) (string, error) {
	options := fmt.Sprintf("mode=1777,nr_inodes=%d,size=", tmpfsInodes)
	if percent, ok := strings.CutSuffix(size, "%"); ok {
		n, err := strconv.Atoi(percent)
		if err != nil || n < 1 || n > mostPercent {
			return "", fmt.Errorf("size %q, must be from 1%% to %d%% of the memory, or an amount such as 8Gi", size, mostPercent)
		}
		return options + size, nil
	}
	q, err := resource.ParseQuantity(size)
	if err != nil || q.Value() < leastTmpfs {
		return "", fmt.Errorf("size %q, must be an amount of at least 16Mi, such as 8Gi, or from 1%% to %d%% of the memory", size, mostPercent)
	}
	return options + strconv.FormatInt(q.Value(), 10), nil
}

// mountedAt returns the source of the last mount at a folder, "" without one.
func mountedAt(dir string) (string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // nothing was written by this process
	source := ""
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// 36 35 98:0 /root /point options - type source options (proc_pid_mountinfo(5))
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 2 || fields[4] != dir {
			continue
		}
		source = kind[1]
	}
	return source, lines.Err()
}

// Usage is what a file system has and what of that is in use, in bytes.
type Usage struct{ Size, Used int64 }

// SharedMemoryUsage measures the file system of a folder.
func SharedMemoryUsage(dir string) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return Usage{Size: int64(s.Blocks) * s.Bsize, Used: int64(s.Blocks-s.Bfree) * s.Bsize}, nil
}
