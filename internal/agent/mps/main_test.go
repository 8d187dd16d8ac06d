package mps

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// ensureVariable makes this test program an agent that ensures one daemon, says so and waits to be killed.
const ensureVariable = "TANDEM_MPS_TEST_ENSURE"

// hangVariable makes it a program that does nothing; if it holds a path, it starts that as an MPS server before.
// hostVariable makes it an MPS host.
const (
	hangVariable = "TANDEM_MPS_TEST_HANG"
	hostVariable = "TANDEM_MPS_TEST_HOST"
)

func TestMain(m *testing.M) {
	if value := os.Getenv(hangVariable); value != "" {
		hang(value)
	}
	if arg := os.Getenv(hostVariable); arg != "" {
		beHost(arg)
		return
	}
	if arg := os.Getenv(ensureVariable); arg != "" {
		dir, uuid, _ := strings.Cut(arg, ",")
		if err := NewV2(Options{Dir: dir, Timeout: time.Minute}).Ensure(context.Background(), DeviceSpec{UUID: uuid}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	os.Exit(withFakes(m.Run))
}

func hang(value string) {
	if filepath.IsAbs(value) {
		server := exec.Command(value)
		server.Args[0], server.Env = serverName, []string{hangVariable + "=1"}
		if err := server.Start(); err != nil {
			fmt.Println(err)
		}
	}
	time.Sleep(10 * time.Minute) // it is killed before
}

// beHost runs an MPS host until it is told to end.
func beHost(arg string) {
	dir, socket, _ := strings.Cut(arg, ",")
	host := Host{Options: Options{Dir: dir, Timeout: time.Minute}}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := host.Run(ctx, socket); err != nil {
		fmt.Println(err)
	}
}

func withFakes(run func() int) int {
	dir, err := os.MkdirTemp("", "tandem-mps")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := fakegpu.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, e := range fakegpu.Env(dir, "") {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return run()
}

// node is a directory for MPS on a node with one fake GPU.
type node struct {
	t     *testing.T
	mps   *V2
	dir   string
	state string
	uuid  string
}

func newNode(t *testing.T) *node {
	t.Helper()
	// Not t.TempDir: with the test's name in it, the path would be too long for a socket.
	dir, err := os.MkdirTemp("", "mps")
	must.OK(t, err)
	state, err := fakegpu.Node("n1", "A100", 1)
	must.OK(t, err)
	n := &node{t: t, dir: dir, state: filepath.Join(dir, "state.json"), uuid: state.Devices[0].UUID}
	n.mps = n.with(time.Minute)
	must.OK(t, state.Write(n.state))
	t.Setenv(fakegpu.StateVariable, n.state)
	t.Cleanup(func() {
		if pid := n.pid(); pid > 0 && isMPS(pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = os.RemoveAll(dir)
	})
	return n
}

// with returns another agent on the same node.
func (n *node) with(timeout time.Duration) *V2 {
	return NewV2(Options{Dir: filepath.Join(n.dir, "mps"), Timeout: timeout})
}

func (n *node) control() control {
	n.t.Helper()
	c, err := newControl(n.mps.options, n.uuid)
	must.OK(n.t, err)
	return c
}

func (n *node) pipe(name string) string { return filepath.Join(n.dir, "mps", n.uuid, "pipe", name) }

// pid returns the PID that the daemon wrote down, 0 for none.
func (n *node) pid() int {
	raw, _ := os.ReadFile(n.pipe("nvidia-cuda-mps-control.pid"))
	pid, _ := strconv.Atoi(string(raw))
	return pid
}

func (n *node) ensure() int {
	n.t.Helper()
	must.OK(n.t, n.mps.Ensure(n.t.Context(), DeviceSpec{UUID: n.uuid}))
	pid := n.pid()
	if pid == 0 || !isMPS(pid) {
		n.t.Fatalf("no daemon after Ensure: PID %d", pid)
	}
	return pid
}

func (n *node) say(command string) string {
	n.t.Helper()
	out, err := n.control().run(n.t.Context(), command)
	must.OK(n.t, err)
	return out
}

func (n *node) order(change func(*fakegpu.MPS)) {
	n.t.Helper()
	must.OK(n.t, fakegpu.Update(n.state, func(s *fakegpu.State) { change(&s.Devices[0].MPS) }))
}

func (n *node) kill(pid int) {
	n.t.Helper()
	must.OK(n.t, syscall.Kill(pid, syscall.SIGKILL))
	eventually(n.t, "the killed process is gone", func() bool { return !isMPS(pid) })
}

// tooLong is what only a hang reaches, on whatever machine.
const tooLong = 5 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(tooLong)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", tooLong, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// selfCommand is this program with another variable.
func (n *node) selfCommand(variable string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// self starts this program in a process group of its own.
func (n *node) self(variable string) *exec.Cmd {
	n.t.Helper()
	cmd := n.selfCommand(variable)
	must.OK(n.t, cmd.Start())
	return cmd
}

// agent starts this program as an agent in a process group of its own and waits until its daemon runs.
func (n *node) agent() *exec.Cmd {
	n.t.Helper()
	cmd := n.selfCommand(ensureVariable + "=" + filepath.Join(n.dir, "mps") + "," + n.uuid)
	out, err := cmd.StdoutPipe()
	must.OK(n.t, err)
	must.OK(n.t, cmd.Start())
	said := make([]byte, 512)
	count, err := out.Read(said)
	if err != nil || strings.TrimSpace(string(said[:count])) != "ready" {
		n.t.Fatalf("agent said %q, %v", said[:count], err)
	}
	return cmd
}
