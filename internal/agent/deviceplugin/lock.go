package deviceplugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockFile in the state folder is held by the one agent of the node. The kernel releases it when the process ends,
// however it ends.
const lockFile = "agent.lock"

// lock takes the node's lock and returns what releases it.
func lock(dir string) (release func() error, err error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock state folder: another agent%s serves this node: it holds %s; stop it first", holderOf(path), path)
		}
		return nil, fmt.Errorf("lock state folder: %s: %w", path, err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid()) // for the message above only
	}
	return f.Close, nil
}

func holderOf(path string) string {
	pid, err := os.ReadFile(path)
	if err != nil || len(strings.TrimSpace(string(pid))) == 0 {
		return ""
	}
	return " (process " + strings.TrimSpace(string(pid)) + ")"
}
