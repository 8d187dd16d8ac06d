package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func (n *node) spec() DeviceSpec { return DeviceSpec{UUID: n.uuid} }

// recycle returns the PID of the daemon that it left.
func (n *node) recycle(m *V2) int {
	n.t.Helper()
	must.OK(n.t, m.Recycle(n.t.Context(), n.spec()))
	pid := n.pid()
	if !isMPS(pid) {
		n.t.Fatalf("no daemon after Recycle: PID %d", pid)
	}
	return pid
}

func (n *node) server() int {
	n.t.Helper()
	pid, err := strconv.Atoi(startServer(n))
	must.OK(n.t, err)
	return pid
}

func TestRecycleReplacesDaemonAndServersInOrder(t *testing.T) {
	n := newNode(t)
	old, server := n.ensure(), n.server()
	spec := DeviceSpec{UUID: n.uuid, Percent: 40}
	must.OK(t, n.mps.Recycle(t.Context(), spec))
	if n.pid() == old || isMPS(old) || isMPS(server) {
		t.Errorf("daemon %d (now %d) or server %d was not replaced", old, n.pid(), server)
	}
	if got := n.say("get_default_active_thread_percentage"); got != "40.0" {
		t.Errorf("default percentage %q after Recycle, want 40.0", got)
	}
	if log := n.log(); strings.Count(log, "Cmd:quit") != 1 {
		t.Errorf("the daemon was not asked to quit once:\n%s", log)
	}
}

// A daemon that answers no command, quit included, is killed, and its servers with it.
func TestRecycleKillsADaemonThatHangs(t *testing.T) {
	n := newNode(t)
	old, server := n.ensure(), n.server()
	n.order(func(m *fakegpu.MPS) { m.Hang = true })
	impatient := n.with(20 * time.Second) // for processes that end by a signal, a long time
	// The order is for the device: the new daemon hangs too, which Recycle must say.
	if err := impatient.Recycle(t.Context(), n.spec()); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("Recycle: %v, want %v", err, ErrNoAnswer)
	}
	if isMPS(old) || isMPS(server) {
		t.Errorf("daemon %d or server %d outlived Recycle", old, server)
	}
	n.order(func(m *fakegpu.MPS) { m.Hang = false })
	must.OK(t, n.mps.Ensure(t.Context(), n.spec()))
}

// stop makes a process hang as a program in a driver call does: it is there and does nothing.
func (n *node) stop(pid int) {
	n.t.Helper()
	must.OK(n.t, syscall.Kill(pid, syscall.SIGSTOP))
	n.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
}

func TestRecycleKillsServersThatStayAfterTheirDaemon(t *testing.T) {
	n := newNode(t)
	old, server := n.ensure(), n.server()
	n.stop(server)
	if now := n.recycle(n.with(20 * time.Second)); now == old || isMPS(server) {
		t.Errorf("daemon %d (was %d), server %d alive: %t", now, old, server, isMPS(server))
	}
}

// A daemon that was killed leaves its socket, its record and its servers.
func TestRecycleAfterTheDaemonDied(t *testing.T) {
	n := newNode(t)
	old, server := n.ensure(), n.server()
	n.stop(server) // else it would end with its daemon
	n.kill(old)
	if now := n.recycle(n.mps); now == old || isMPS(server) {
		t.Errorf("daemon %d (was %d), server %d alive: %t", now, old, server, isMPS(server))
	}
}

func TestRecycleWithoutADaemonStartsOne(t *testing.T) {
	n := newNode(t)
	n.recycle(n.mps)
}

// The record is lost, as on a full disk: the daemon is known by its environment and the option that made it one.
func TestRecycleFindsADaemonWithoutARecord(t *testing.T) {
	n := newNode(t)
	old := n.ensure()
	n.stop(old)
	must.OK(t, os.Truncate(n.pipe(pidName), 0))
	if now := n.recycle(n.with(20 * time.Second)); now == old || isMPS(old) {
		t.Errorf("daemon %d was not replaced: now %d", old, now)
	}
}

// impostor starts a process that has MPS's name for the kernel, and another one on its command line as told, and hangs.
func (n *node) impostor(name, pipe string, args ...string) int {
	n.t.Helper()
	return n.impostorWith("1", name, pipe, args...)
}

func (n *node) impostorWith(hang, name, pipe string, args ...string) int {
	n.t.Helper()
	self, err := os.Executable()
	must.OK(n.t, err)
	path := filepath.Join(n.dir, controlName)
	if err := os.Symlink(self, path); err != nil && !errors.Is(err, os.ErrExist) {
		n.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Args[0] = name
	cmd.Env = []string{hangVariable + "=" + hang}
	if pipe != "" {
		cmd.Env = append(cmd.Env, PipeVariable+"="+filepath.Clean(pipe))
	}
	must.OK(n.t, cmd.Start())
	n.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	eventually(n.t, "the impostor has its name", func() bool {
		p, ok := findProcess(cmd.Process.Pid)
		return ok && isMPS(p.pid) && len(p.words()) > 0 && p.words()[0] == name && p.variable(hangVariable) != ""
	})
	return cmd.Process.Pid
}

// The agent never kills a process that only looks like this directory's MPS: each of these lacks one part of the proof.
func TestRecycleKillsNothingThatItCannotProve(t *testing.T) {
	n := newNode(t)
	old := n.ensure()
	own, other := n.pipe(""), "/elsewhere"
	spared := map[string]int{
		"daemon of another directory": n.impostor(controlName, other, "-d"),
		"daemon without a directory":  n.impostor(controlName, "", "-d"),
		"server of another directory": n.impostor(serverName, other),
		"server without a directory":  n.impostor(serverName, ""),
		"front end":                   n.impostor(controlName, own),
		"other program":               n.impostor("nvidia-smi", own, "-d"),
	}
	if now := n.recycle(n.mps); now == old {
		t.Errorf("daemon %d was not replaced", old)
	}
	for name, pid := range spared {
		if !isMPS(pid) {
			t.Errorf("%s: process %d was killed", name, pid)
		}
	}
}

func TestRecycleKillsWhatItCanProve(t *testing.T) {
	n := newNode(t)
	n.ensure()
	server := n.impostor(serverName, n.pipe(""))
	n.recycle(n.mps)
	if isMPS(server) {
		t.Errorf("server %d of this directory lives on", server)
	}
}

// A process that was seen as this directory's stays so when its daemon, which was the proof, is gone; those that came
// since count too.
func TestLeftAreThoseSeenBeforeAndThoseThatCame(t *testing.T) {
	n := newNode(t)
	daemon, orphan := n.ensure(), n.impostor(serverName, "")
	before, ok := findProcess(orphan)
	if !ok {
		t.Fatal("no orphan")
	}
	pids := func() (pids []int) {
		for _, p := range n.control().left([]process{before}) {
			pids = append(pids, p.pid)
		}
		return pids
	}
	if diff := cmp.Diff([]int{orphan, daemon}, pids()); diff != "" {
		t.Error(diff)
	}
	n.kill(orphan)
	if diff := cmp.Diff([]int{daemon}, pids()); diff != "" {
		t.Error(diff)
	}
}

// The same PID at another time is another process.
func TestKillSparesTheNextProcessWithThePID(t *testing.T) {
	n := newNode(t)
	pid := n.impostor(serverName, "")
	now, ok := findProcess(pid)
	before := now
	before.started = "1"
	if !ok || !now.alive() || before.alive() {
		t.Errorf("%+v alive: %t, %+v alive: %t", now, now.alive(), before, before.alive())
	}
	if err := before.kill(); err != nil || !now.alive() {
		t.Errorf("kill of an earlier process: %v, this one alive: %t", err, now.alive())
	}
	if err := now.kill(); err != nil {
		t.Error(err)
	}
	eventually(t, "it is killed", func() bool { return !now.alive() })
	if err := now.kill(); err != nil {
		t.Errorf("kill of a dead process: %v", err)
	}
}

// A server whose environment says nothing, or may not be read, is known by its parent.
func TestRecycleKillsTheChildrenOfTheDaemon(t *testing.T) {
	n := newNode(t)
	must.OK(t, os.MkdirAll(n.pipe(""), 0o755))
	daemon := n.impostorWith(filepath.Join(n.dir, controlName), controlName, n.pipe(""), "-d")
	server := 0
	eventually(t, "the daemon has a server", func() bool {
		for _, p := range mpsProcesses() {
			if p.parent == daemon && p.is(serverName) {
				server = p.pid
			}
		}
		return server != 0
	})
	t.Cleanup(func() { _ = syscall.Kill(server, syscall.SIGKILL) })
	n.recycle(n.mps)
	if isMPS(daemon) || isMPS(server) {
		t.Errorf("daemon %d alive: %t, server %d alive: %t", daemon, isMPS(daemon), server, isMPS(server))
	}
}

// The recorded PID was used again, by an MPS program of another directory: Recycle says so and leaves it alone.
func TestRecycleLeavesTheProcessThatInheritedThePID(t *testing.T) {
	n := newNode(t)
	n.kill(n.ensure())
	stranger := n.impostor(controlName, "/elsewhere", "-d")
	must.OK(t, os.WriteFile(n.pipe(pidName), fmt.Append(nil, stranger), 0o644))
	err := n.mps.Recycle(t.Context(), n.spec())
	if err == nil || !strings.Contains(err.Error(), "end it by hand") || !strings.Contains(err.Error(), strconv.Itoa(stranger)) {
		t.Errorf("Recycle: %v, want an error that names process %d", err, stranger)
	}
	if !isMPS(stranger) {
		t.Error("the stranger was killed")
	}
	// By another program it is nothing of note.
	must.OK(t, os.WriteFile(n.pipe(pidName), fmt.Append(nil, os.Getpid()), 0o644))
	n.recycle(n.mps)
}

func TestRecycleLeavesTheDaemonOfAnotherDevice(t *testing.T) {
	n := newNode(t)
	other := n.control()
	other.uuid = "GPU-of-somebody-else"
	unlock, err := other.exclude(t.Context()) // makes the directories
	must.OK(t, err)
	unlock()
	must.OK(t, other.start(t.Context()))
	pid := n.pid()
	if err := n.mps.Recycle(t.Context(), n.spec()); err == nil || !strings.Contains(err.Error(), other.uuid) {
		t.Errorf("Recycle: %v, want an error that names %s", err, other.uuid)
	}
	if !isMPS(pid) {
		t.Error("the daemon of another device was ended")
	}
}

func TestTwoRecyclesAtOnceMakeOneDaemon(t *testing.T) {
	n := newNode(t)
	old, server := n.ensure(), n.server()
	n.order(func(m *fakegpu.MPS) { m.LingerMillis = 300 })
	unlock, err := n.control().exclude(t.Context())
	must.OK(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := n.with(time.Minute).Recycle(t.Context(), n.spec()); err != nil {
				t.Error(err)
			}
		})
	}
	// All of them have seen the old daemon and wait for the lock.
	eventually(t, "four recyclers wait", func() bool { return n.holders("agent.lock") >= 5 })
	unlock()
	wg.Wait()
	if got := strings.Count(n.log(), "Starting control daemon"); got != 2 {
		t.Errorf("%d daemons were started, want 2: the first and one by Recycle", got)
	}
	if isMPS(old) || isMPS(server) {
		t.Errorf("daemon %d or server %d lives on", old, server)
	}
}

// holders counts this process's descriptors of a file beside the pipe directory.
func (n *node) holders(name string) int {
	fds, _ := filepath.Glob("/proc/self/fd/*")
	count := 0
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == filepath.Join(n.dir, "mps", n.uuid, name) {
			count++
		}
	}
	return count
}

// One daemon is left, whichever call comes first. A call that adopted a daemon just before another one replaced it may
// say so.
func TestEnsureAndRecycleExcludeEachOther(t *testing.T) {
	n := newNode(t)
	n.ensure()
	n.order(func(m *fakegpu.MPS) { m.LingerMillis = 200 })
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			m := n.with(time.Minute)
			call := m.Ensure
			if i%2 == 0 {
				call = m.Recycle
			}
			if err := call(t.Context(), n.spec()); err != nil && !errors.Is(err, ErrNotRunning) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if own := n.control().owned(); len(own) != 1 || own[0].pid != n.pid() {
		t.Errorf("%+v are left, want one daemon: %d", own, n.pid())
	}
}

func TestWaitingForATurnEndsWithTheCall(t *testing.T) {
	n := newNode(t)
	n.mps.device(n.uuid).turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.mps.Ready(ctx, n.uuid); err == nil || !strings.Contains(err.Error(), "wait for another call") {
		t.Errorf("Ready: %v, want the end of the wait", err)
	}
}
