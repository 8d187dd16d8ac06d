package fakegpu_test

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// tenant is a run of the static program.
type tenant struct {
	t   *testing.T
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (n *tenant) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out.Write(p)
}

func (n *tenant) said() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out.String()
}

// startTenant runs the program with an environment of its own, as a container does.
func startTenant(t *testing.T, env []string, args ...string) *tenant {
	t.Helper()
	path, err := exec.LookPath(fakegpu.TenantName)
	must.OK(t, err)
	n := &tenant{t: t, cmd: exec.Command(path, args...)}
	n.cmd.Env = env
	n.cmd.Stdout, n.cmd.Stderr = n, n
	must.OK(t, n.cmd.Start())
	t.Cleanup(func() { _ = n.cmd.Process.Kill() })
	return n
}

func (n *tenant) says(word string) {
	n.t.Helper()
	eventually(n.t, "the tenant says "+word, func() bool { return strings.Contains(n.said(), word+"\n") })
}

func (n *tenant) signal(s syscall.Signal) {
	n.t.Helper()
	must.OK(n.t, n.cmd.Process.Signal(s))
}

// ends waits for the end and compares the exit status.
func (n *tenant) ends(status int) {
	n.t.Helper()
	_ = n.cmd.Wait()
	if got := n.cmd.ProcessState.ExitCode(); got != status {
		n.t.Errorf("exit status %d, want %d; it said %q", got, status, n.said())
	}
}

func TestTenantReadsItsEnvironment(t *testing.T) {
	g := newGPU(t)
	env := []string{
		"CUDA_MPS_PIPE_DIRECTORY=" + g.pipe(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" + g.uuid + "=2048M",
	}
	n := startTenant(t, env, "--memory", "2Gi", "--sm", "40", "--bw", "20", "--in-flight")
	n.says("connected server=" + waitServer(g))
	u := fakegpu.ReadUsage(g.state, g.uuid)
	if want := (fakegpu.ClientUsage{PID: n.cmd.Process.Pid, Memory: 2 << 30, SM: 30, Bandwidth: 20}); len(u.Clients) != 1 || u.Clients[0] != want {
		t.Errorf("usage %+v, want %+v", u.Clients, want)
	}
	over := startTenant(t, env, "--memory", "3Gi")
	over.ends(1)
	over.says("out of memory")

	// SIGTERM is an end in order, work in flight or not.
	n.signal(syscall.SIGTERM)
	n.ends(0)
	n.says("bye")
	g.dial(fakegpu.ClientLoad{}).Close()
	startTenant(t, nil, "--memory", "much").ends(1)
	startTenant(t, []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1G"}).ends(1)
}

func waitServer(g *gpu) (pid string) {
	eventually(g.t, "there is a server", func() bool { pid = g.server(); return pid != "" })
	return pid
}

func TestTenantSaysWhatHappensToIt(t *testing.T) {
	g := newGPU(t)
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + g.pipe()}
	stubborn := startTenant(t, env, "--in-flight", "--ignore-term")
	stubborn.says("connected server=" + waitServer(g))
	stubborn.signal(syscall.SIGTERM)
	g.expect("terminate_client "+g.server()+" "+g.clients(), "", 0)
	stubborn.ends(3)
	stubborn.says("terminated")

	neighbour := startTenant(t, env)
	neighbour.says("connected server=" + waitServer(g)) // before the other one breaks the server
	cause := startTenant(t, env, "--fault-after", "1s")
	for _, n := range []*tenant{neighbour, cause} {
		n.ends(4)
		n.says("fault")
	}
	eventually(t, "the server is active again", func() bool { return g.status() == "ACTIVE" })

	// SIGKILL with work in flight is a fault of the neighbours too.
	killed, beside := startTenant(t, env, "--in-flight"), startTenant(t, env)
	for _, n := range []*tenant{killed, beside} {
		n.says("connected server=" + g.server())
	}
	killed.signal(syscall.SIGKILL)
	killed.ends(-1)
	beside.ends(4)
	beside.says("fault")
	eventually(t, "the server is active again", func() bool { return g.clients() == "" && g.status() == "ACTIVE" })

	// A server that is wedged blocks the next.
	g.order(func(d *fakegpu.Device) { d.MPS.Wedge = true })
	blocked := startTenant(t, env)
	blocked.says("blocked")
	blocked.signal(syscall.SIGTERM)
	blocked.ends(0)

	g.restart()
	last := startTenant(t, env)
	last.says("connected server=" + waitServer(g))
	g.say("quit -t 0")
	last.ends(4)
	last.says("gone")
}

func TestTenantRunsWithoutMPS(t *testing.T) {
	dir := t.TempDir()
	// A socket that nobody answers is no daemon either.
	stale := dir + "/control"
	must.OK(t, os.WriteFile(stale, nil, 0o644))
	for _, env := range [][]string{nil, {"CUDA_MPS_PIPE_DIRECTORY=" + t.TempDir()}, {"CUDA_MPS_PIPE_DIRECTORY=" + dir}} {
		n := startTenant(t, env)
		n.says("without MPS")
		n.signal(syscall.SIGTERM)
		n.ends(0)
	}
}

// The image of a container holds nothing but the program.
func TestTenantIsStatic(t *testing.T) {
	path, err := exec.LookPath(fakegpu.TenantName)
	must.OK(t, err)
	f, err := elf.Open(path)
	must.OK(t, err)
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the tenant needs a dynamic loader")
		}
	}
}
