package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// Names of MPS's programs, as their command lines show them.
const (
	controlName = "nvidia-cuda-mps-control"
	serverName  = "nvidia-cuda-mps-server"
)

// process is one that belongs to the node.
type process struct {
	pid    int
	name   string
	device string // of the pipe directory that it names
}

// belongings lists the processes of the node: all that know its state file.
func (n *Node) belongings() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := make([]process, 0, 16)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // empty for a zombie
		if !strings.Contains(string(environ), fakegpu.StateVariable+"="+n.state()+"\x00") {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		name, _, _ := strings.Cut(string(cmdline), "\x00")
		p := process{pid: pid, name: filepath.Base(name)}
		for _, uuid := range n.uuids {
			if strings.Contains(string(environ), "CUDA_MPS_PIPE_DIRECTORY="+n.pipe(uuid)+"\x00") {
				p.device = uuid
			}
		}
		all = append(all, p)
	}
	return all
}

// daemon returns the PID of a device's control daemon, as its pipe directory says; false where none runs.
func (n *Node) daemon(uuid string) (int, bool) {
	raw, err := os.ReadFile(filepath.Join(n.pipe(uuid), controlName+".pid"))
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, false
	}
	ours := slices.ContainsFunc(n.belongings(), func(p process) bool { return p.pid == pid && p.name == controlName })
	return pid, ours
}

// servers returns the PIDs of a device's MPS servers.
func (n *Node) servers(uuid string) []int {
	var pids []int
	for _, p := range n.belongings() {
		if p.name == serverName && p.device == uuid {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// endMPS ends all daemons, however they are.
func (n *Node) endMPS() {
	for _, p := range n.belongings() {
		if p.name == controlName || p.name == serverName {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended by itself
		}
	}
}

// awaitNobody waits until the node has no process left.
func (n *Node) awaitNobody(ctx context.Context) error {
	return poll(ctx, 100*time.Millisecond, "the end of all processes of the node", func(context.Context) error {
		if left := n.belongings(); len(left) > 0 {
			return fmt.Errorf("%d are left: %v", len(left), left)
		}
		return nil
	})
}
