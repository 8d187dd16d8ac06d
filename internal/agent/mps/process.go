package mps

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Names of MPS's two programs.
const (
	controlName = "nvidia-cuda-mps-control"
	serverName  = "nvidia-cuda-mps-server"
)

// process is one process at one time: a PID alone is used again.
type process struct {
	pid, parent int
	// started is the time of its start in /proc, in ticks since the host booted.
	started string
}

// findProcess returns the living process with a PID. A zombie is dead.
func findProcess(pid int) (process, bool) {
	stat, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		return process{}, false
	}
	// The second field is the name, in parentheses, and may hold anything (proc_pid_stat(5)).
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || string(fields[0]) == "Z" || string(fields[0]) == "X" {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return process{pid: pid, parent: parent, started: string(fields[19])}, err == nil
}

func procPath(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// alive says whether this very process still lives.
func (p process) alive() bool {
	now, ok := findProcess(p.pid)
	return ok && now.started == p.started
}

// words is the command line; its first word carries the whole name, of which the kernel's own record has 15 bytes.
func (p process) words() []string {
	raw, err := os.ReadFile(procPath(p.pid, "cmdline"))
	if err != nil || len(raw) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
}

// is goes by the name in both places: the command line is the process's to write, the other is the file's unless the
// process changed it.
func (p process) is(name string) bool {
	words := p.words()
	return len(words) > 0 && filepath.Base(words[0]) == name && isMPS(p.pid)
}

// variable returns a variable of the process's initial environment, "" for none and for a process that this one may not
// read.
func (p process) variable(name string) string {
	raw, err := os.ReadFile(procPath(p.pid, "environ"))
	if err != nil {
		return ""
	}
	for entry := range strings.SplitSeq(string(raw), "\x00") {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// kill ends this very process and no later one with its PID: the handle is opened first, by which the signal goes, and
// the identity is looked at then.
func (p process) kill() error {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if !p.alive() {
		return nil
	}
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	return nil
}

// isMPS goes by the name of the program's file, which the kernel cuts after 15 bytes. A zombie is dead.
func isMPS(pid int) bool {
	comm, err := os.ReadFile(procPath(pid, "comm"))
	if err != nil || !bytes.HasPrefix(comm, []byte(controlName[:15])) {
		return false
	}
	_, alive := findProcess(pid)
	return alive
}

// mpsProcesses lists the MPS programs of all pipe directories.
func mpsProcesses() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !isMPS(pid) {
			continue
		}
		if p, ok := findProcess(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

// owned lists the processes that provably belong to this pipe directory: its control daemon and the servers of that. A
// daemon has the program's name, names this directory in its environment, and either wrote its PID there or has the
// daemon option (the front end, which has the same name, has not). A server has the program's name, and either is a
// child of that daemon or names this directory itself. A process whose environment this one may not read proves
// nothing.
func (c control) owned() []process {
	all := mpsProcesses()
	recorded, _ := c.recorded()
	var own, servers []process
	for _, p := range all {
		if p.is(controlName) && c.named(p) && (p.pid == recorded || p.daemon()) {
			own = append(own, p)
		}
	}
	for _, p := range all {
		child := slices.ContainsFunc(own, func(d process) bool { return p.parent == d.pid })
		if p.is(serverName) && (child || c.named(p)) {
			servers = append(servers, p)
		}
	}
	return append(own, servers...)
}

func (c control) named(p process) bool { return p.variable(PipeVariable) == c.pipe }

// daemon says whether the control program has the option for the background or the foreground.
func (p process) daemon() bool {
	return slices.ContainsFunc(p.words(), func(w string) bool { return w == "-d" || w == "-f" })
}
