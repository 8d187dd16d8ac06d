package e2e

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// cgroupRoot is the control group under which the kubelet puts all pods of a run.
const cgroupRoot = "tandem-e2e"

// busyboxPath is the program of the pods' only image; Debian's busybox-static puts it there.
const busyboxPath = "/bin/busybox"

// cniDirs are where Debian and others keep CNI plugins.
func cniDirs() []string { return []string{"/usr/lib/cni", "/opt/cni/bin"} }

// checkMachine says what is missing before the builds.
func checkMachine() error {
	if os.Geteuid() != 0 {
		return errors.New("check machine: the kubelet and containerd need root: run make e2e as root")
	}
	for _, program := range []string{"runc", "ip", "mount"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("check machine: %w: make e2e installs what is missing on Debian", err)
		}
	}
	hasPTP := func(dir string) bool { _, err := os.Stat(filepath.Join(dir, "ptp")); return err == nil }
	if !slices.ContainsFunc(cniDirs(), hasPTP) {
		return fmt.Errorf("check machine: no CNI plugin ptp in %s: install containernetworking-plugins", strings.Join(cniDirs(), ", "))
	}
	return checkStatic(busyboxPath)
}

// checkStatic refuses a program that needs an interpreter: the image holds no libraries.
func checkStatic(path string) error {
	file, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("check machine: %w: install busybox-static", err)
	}
	defer func() { _ = file.Close() }() // nothing was written by the test
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("check machine: %s is linked dynamically: install busybox-static", path)
		}
	}
	return nil
}

// lock keeps a second run out; the kernel releases it when this process ends.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock run: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock run: another run holds %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}

// sweep removes what this run or an earlier one left.
func sweep(l layout) error {
	err := errors.Join(removeControlGroups(), removeKubeletDir(l))
	if e := os.RemoveAll(l.root); e != nil {
		err = errors.Join(err, fmt.Errorf("sweep: %w", e))
	}
	return err
}

// kubeletDirMark says that this run made kubeletDir, which serves as a mount point only.
func kubeletDirMark(l layout) string { return l.path("made-kubelet-dir") }

func makeKubeletDir(l layout) error {
	if _, err := os.Stat(kubeletDir); err == nil {
		return nil
	}
	if err := os.WriteFile(kubeletDirMark(l), nil, 0o600); err != nil {
		return fmt.Errorf("make %s: %w", kubeletDir, err)
	}
	if err := os.Mkdir(kubeletDir, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return nil
}

func removeKubeletDir(l layout) error {
	_, err := os.Stat(kubeletDirMark(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was there before, or is gone already
	}
	if err != nil {
		return fmt.Errorf("remove mount point: %w", err)
	}
	if err := os.Remove(kubeletDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove mount point: %w", err)
	}
	return nil
}

// controlGroups returns the run's group in each hierarchy of cgroup v1, or the one of cgroup v2.
func controlGroups() ([]string, error) {
	const mount = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return []string{filepath.Join(mount, cgroupRoot)}, nil
	}
	hierarchies, err := os.ReadDir(mount)
	if err != nil {
		return nil, fmt.Errorf("list control groups: %w", err)
	}
	var groups []string
	for _, h := range hierarchies {
		if h.IsDir() {
			groups = append(groups, filepath.Join(mount, h.Name(), cgroupRoot))
		}
	}
	return groups, nil
}

func makeControlGroups() error {
	groups, err := controlGroups()
	if err != nil {
		return err
	}
	for _, group := range groups {
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("make control group: %w", err)
		}
		// A new cpuset of cgroup v1 is empty and takes no process.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(filepath.Dir(group), name))
			if err != nil {
				continue // not the cpuset hierarchy
			}
			if err := os.WriteFile(filepath.Join(group, name), all, 0o600); err != nil {
				return fmt.Errorf("make control group: %w", err)
			}
		}
	}
	return nil
}

// removeControlGroups removes the groups from the leaves up. Their processes are gone, or their namespace was not.
func removeControlGroups() error {
	groups, err := controlGroups()
	if err != nil {
		return err
	}
	for _, group := range groups {
		var dirs []string
		err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // files come and go during the listing
		})
		for _, dir := range slices.Backward(dirs) {
			if e := syscall.Rmdir(dir); e != nil && !errors.Is(e, syscall.ENOENT) {
				err = errors.Join(err, fmt.Errorf("remove control group %s: %w", dir, e))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
