package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// leftovers are the names that a control daemon leaves in its pipe directory. clean removes no other name.
var leftovers = []string{"control", "control_privileged", "control_lock", "log", pidName}

// clean removes the files of a daemon that has ended. clean refuses while there is a sign of a running daemon: a
// process under the recorded PID that is an MPS program, or a socket that a process still holds open.
func (c control) clean() error {
	if pid, alive := c.recorded(); alive {
		return fmt.Errorf("%w: process %d is alive", ErrNoAnswer, pid)
	}
	if c.listening() {
		return fmt.Errorf("%w: %s is held open", ErrNoAnswer, c.socket())
	}
	for _, name := range leftovers {
		if err := os.Remove(filepath.Join(c.pipe, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the leftovers of a dead daemon: %w", err)
		}
	}
	return nil
}

// recorded returns the PID that the daemon wrote down, and whether that process lives and is an MPS program. PIDs are
// used again, so the name counts too. The PID is visible only in the host's PID namespace.
func (c control) recorded() (int, bool) {
	raw, err := os.ReadFile(c.pidFile())
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || pid <= 0 {
		return 0, false
	}
	return pid, isMPS(pid)
}

// running returns the daemon whose PID is on record, if it runs and this process can see it.
func (c control) running() (process, bool) {
	pid, alive := c.recorded()
	if !alive {
		return process{}, false
	}
	return findProcess(pid)
}

// listening finds out from the kernel whether a process holds the control socket. Only "refused" and "no such file"
// mean that none does: the real daemon may use another type of socket, which is an error too.
func (c control) listening() bool {
	conn, err := net.Dial("unix", c.socket())
	if err == nil {
		_ = conn.Close()
		return true
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// belongs checks that a running daemon is for this device and no other. Without the right to see that process, the
// directory's name has to do.
func (c control) belongs() error {
	p, alive := c.running()
	if !alive {
		return nil
	}
	if device := p.variable(visibleVariable); device != "" && device != c.uuid {
		return fmt.Errorf("daemon %d serves %s", p.pid, device)
	}
	return nil
}
