package mps

import (
	"context"
	"errors"
	"os"
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

func TestEnsureStartsADaemonInItsOwnSession(t *testing.T) {
	n := newNode(t)
	if err := n.mps.Ready(t.Context(), n.uuid); !errors.Is(err, ErrNotRunning) {
		t.Fatalf("Ready before Ensure: %v, want %v", err, ErrNotRunning)
	}
	pid := n.ensure()
	must.OK(t, n.mps.Ready(t.Context(), n.uuid))
	session, _, errno := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if own, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0); errno != 0 || session == own {
		t.Errorf("the daemon is in session %d, the agent too (%d), errno %d", session, own, errno)
	}
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	must.OK(t, err)
	if want := "\x00CUDA_VISIBLE_DEVICES=" + n.uuid + "\x00"; !strings.Contains("\x00"+string(environ), want) {
		t.Errorf("daemon's environment lacks %q", want)
	}
}

func TestMultiUserIsAnOptionOfTheDaemon(t *testing.T) {
	n := newNode(t)
	for _, multi := range []bool{false, true} {
		n.mps = NewV2(Options{Dir: filepath.Join(n.dir, "mps"), MultiUser: multi, Timeout: time.Minute})
		pid := n.ensure()
		cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		must.OK(t, err)
		if got := strings.Contains(string(cmdline), "\x00-multiuser-server\x00"); got != multi {
			t.Errorf("MultiUser %t starts %q", multi, cmdline)
		}
		must.OK(t, n.mps.Stop(t.Context(), n.uuid))
	}
}

// The stand-in makes a session by itself; a daemon that does not must still be in none of the agent's.
func TestStartGivesTheDaemonASession(t *testing.T) {
	n := newNode(t)
	script := "#!/bin/sh\n[ \"$1\" = -d ] || exit 1\ncut -d' ' -f6 /proc/$$/stat > \"$CUDA_MPS_PIPE_DIRECTORY/session\"\necho out of order; exit 3\n"
	must.OK(t, os.WriteFile(filepath.Join(n.dir, "nvidia-cuda-mps-control"), []byte(script), 0o755))
	t.Setenv("PATH", n.dir+":"+os.Getenv("PATH"))
	if err := n.mps.Ensure(t.Context(), DeviceSpec{UUID: n.uuid}); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("Ensure: %v, want what the program said", err)
	}
	own, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	raw, err := os.ReadFile(n.pipe("session"))
	must.OK(t, err)
	if session, err := strconv.Atoi(strings.TrimSpace(string(raw))); err != nil || session == int(own) {
		t.Errorf("the program ran in session %d, %v; the agent's is %d", session, err, own)
	}
}

func TestDaemonOutlivesItsStarterAndIsAdopted(t *testing.T) {
	n := newNode(t)
	agent := n.agent()
	pid := n.pid()
	server := startServer(n)
	// The whole process group of the agent dies, as when a container or a terminal ends.
	must.OK(t, syscall.Kill(-agent.Process.Pid, syscall.SIGKILL))
	if err := agent.Wait(); err == nil {
		t.Fatal("the agent was not killed")
	}
	if got := n.ensure(); got != pid {
		t.Errorf("daemon is process %d, was %d: not adopted", got, pid)
	}
	if got := n.say("get_server_list"); got != server {
		t.Errorf("servers %q, want %q", got, server)
	}
}

// startServer has the daemon start a server and returns its PID.
func startServer(n *node) string {
	n.t.Helper()
	n.say("start_server -uid 0")
	server := n.say("get_server_list")
	if server == "" {
		n.t.Fatal("no server")
	}
	return server
}

func TestEnsureTwiceChangesNothing(t *testing.T) {
	n := newNode(t)
	pid := n.ensure()
	server := startServer(n)
	if got := n.ensure(); got != pid {
		t.Errorf("daemon is process %d, was %d", got, pid)
	}
	if got := n.say("get_server_list"); got != server {
		t.Errorf("servers %q, want %q", got, server)
	}
}

func TestManyAgentsAtOnceMakeOneDaemon(t *testing.T) {
	n := newNode(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if err := n.with(time.Minute).Ensure(t.Context(), DeviceSpec{UUID: n.uuid}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := strings.Count(n.log(), "Starting control daemon"); got != 1 {
		t.Errorf("%d daemons were started, want 1", got)
	}
}

func (n *node) log() string {
	raw, err := os.ReadFile(filepath.Join(n.dir, "mps", n.uuid, "log", "control.log"))
	must.OK(n.t, err)
	return string(raw)
}

func TestDefaultsAreSetByUUIDAndReadBack(t *testing.T) {
	n := newNode(t)
	spec := DeviceSpec{UUID: n.uuid, Percent: 40, Memory: 5<<30 + 1}
	for range 2 {
		must.OK(t, n.mps.Ensure(t.Context(), spec))
	}
	if got := n.say("get_default_active_thread_percentage"); got != "40.0" {
		t.Errorf("default percentage %q, want 40.0", got)
	}
	if got := n.say("get_default_device_pinned_mem_limit " + n.uuid); got != "5G" {
		t.Errorf("default memory limit %q, want 5G", got)
	}
	if got := strings.Count(n.log(), "Cmd:set_default_device_pinned_mem_limit "+n.uuid+" 5120M\n"); got != 1 {
		t.Errorf("the limit was set %d times, want once", got)
	}
	// An adopted daemon with other defaults is corrected.
	must.OK(t, n.mps.Ensure(t.Context(), DeviceSpec{UUID: n.uuid}))
	if got := n.say("get_default_active_thread_percentage"); got != "100.0" {
		t.Errorf("default percentage %q, want 100.0", got)
	}
}

func TestDefaultsThatAreNotKeptAreAnError(t *testing.T) {
	for _, spec := range []DeviceSpec{{Percent: 40}, {Memory: 5 << 30}, {Memory: 100 << 20}} {
		n := newNode(t)
		n.order(func(m *fakegpu.MPS) { m.IgnoreLimits = true })
		spec.UUID = n.uuid
		if err := n.mps.Ensure(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "not obeyed") {
			t.Errorf("%+v: %v, want a default that was not obeyed", spec, err)
		}
	}
}

func TestWedgedDaemonIsReportedAndLeftAlone(t *testing.T) {
	n := newNode(t)
	pid := n.ensure()
	n.order(func(m *fakegpu.MPS) { m.Hang = true })
	impatient := n.with(200 * time.Millisecond)
	for name, call := range map[string]func() error{
		"Ready":  func() error { return impatient.Ready(t.Context(), n.uuid) },
		"Ensure": func() error { return impatient.Ensure(t.Context(), DeviceSpec{UUID: n.uuid}) },
		"Stop":   func() error { return impatient.Stop(t.Context(), n.uuid) },
	} {
		if err := call(); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("%s: %v, want %v", name, err, ErrNoAnswer)
		}
	}
	n.order(func(m *fakegpu.MPS) { m.Hang = false })
	if err := n.mps.Ready(t.Context(), n.uuid); err != nil || n.pid() != pid {
		t.Errorf("after the hang: %v, daemon %d, want %d", err, n.pid(), pid)
	}
}

func TestCancelledCallEnds(t *testing.T) {
	n := newNode(t)
	n.ensure()
	n.order(func(m *fakegpu.MPS) { m.Hang = true })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := n.mps.Ready(ctx, n.uuid); err == nil {
		t.Error("Ready succeeded on a daemon that does not answer")
	}
}

func TestFaultIsNotReady(t *testing.T) {
	n := newNode(t)
	n.ensure()
	startServer(n)
	n.order(func(m *fakegpu.MPS) { m.Fault = true })
	if err := n.mps.Ready(t.Context(), n.uuid); !errors.Is(err, ErrFault) {
		t.Errorf("Ready: %v, want %v", err, ErrFault)
	}
	if err := n.mps.Ensure(t.Context(), DeviceSpec{UUID: n.uuid}); !errors.Is(err, ErrFault) {
		t.Errorf("Ensure: %v, want %v", err, ErrFault)
	}
	n.order(func(m *fakegpu.MPS) { m.Fault = false })
	if err := n.mps.Ready(t.Context(), n.uuid); err != nil {
		t.Errorf("Ready after the fault: %v", err)
	}
}

func TestStopEndsDaemonAndServers(t *testing.T) {
	n := newNode(t)
	pid := n.ensure()
	server, err := strconv.Atoi(startServer(n))
	must.OK(t, err)
	n.order(func(m *fakegpu.MPS) { m.LingerMillis = 300 })
	for range 2 {
		must.OK(t, n.mps.Stop(t.Context(), n.uuid))
	}
	if isMPS(pid) {
		t.Errorf("daemon %d still runs after Stop", pid)
	}
	eventually(t, "the server is gone", func() bool { return !isMPS(server) })
	n.ensure()
}

// In another PID namespace the recorded PID says nothing; then the socket tells when the daemon is gone.
func TestStopWithoutAVisiblePID(t *testing.T) {
	n := newNode(t)
	pid := n.ensure()
	t.Cleanup(func() {
		if isMPS(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	must.OK(t, os.Remove(n.pipe("nvidia-cuda-mps-control.pid")))
	n.order(func(m *fakegpu.MPS) { m.LingerMillis = 300 })
	must.OK(t, n.mps.Stop(t.Context(), n.uuid))
	if n.control().listening() {
		t.Error("the daemon still listens after Stop")
	}
}

func TestWhatCannotWorkIsSaid(t *testing.T) {
	long := NewV2(Options{Dir: "/" + strings.Repeat("d", 60)})
	n := newNode(t)
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"empty UUID":    {n.mps.Ensure(t.Context(), DeviceSpec{}), "not a device UUID"},
		"path for UUID": {n.mps.Ready(t.Context(), "../x"), "not a device UUID"},
		"parent":        {n.mps.Stop(t.Context(), ".."), "not a device UUID"},
		"long path":     {long.Ensure(t.Context(), DeviceSpec{UUID: n.uuid}), "choose a shorter directory"},
		"percent":       {n.mps.Ensure(t.Context(), DeviceSpec{UUID: n.uuid, Percent: 101}), "out of range"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, test.err, test.want)
		}
	}
	t.Setenv("PATH", n.dir)
	if err := n.mps.Ensure(t.Context(), DeviceSpec{UUID: n.uuid}); !errors.Is(err, ErrNoBinary) {
		t.Errorf("without the program: %v, want %v", err, ErrNoBinary)
	}
}

func TestForeignVariablesDoNotReachTheDaemon(t *testing.T) {
	n := newNode(t)
	t.Setenv(PipeVariable, "/elsewhere")
	t.Setenv(PercentVariable, "3")
	n.ensure()
	var got []string
	for _, e := range n.control().environ() {
		if strings.HasPrefix(e, "CUDA_") {
			got = append(got, e)
		}
	}
	want := []string{"CUDA_VISIBLE_DEVICES=" + n.uuid, PipeVariable + "=" + n.pipe(""), LogVariable + "=" + filepath.Join(n.dir, "mps", n.uuid, "log")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
