package fakegpu_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// program is a CUDA program of C that does what it is told; see testdata/program.c.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string
}

func compileProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("cc", "-o", path, "testdata/program.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func startProgram(t *testing.T, path string, env ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(path), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), env...)
	in, err := p.cmd.StdinPipe()
	must.OK(t, err)
	p.in = in
	out, err := p.cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, p.cmd.Start())
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *program) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// expect makes calls and compares what the program prints for each.
func (p *program) expect(calls ...string) {
	p.t.Helper()
	for _, call := range calls {
		call, want, _ := strings.Cut(call, ": ")
		if want == "" {
			want = "0 CUDA_SUCCESS"
		}
		fmt.Fprintln(p.in, call)
		select {
		case got := <-p.lines:
			if got != want {
				p.t.Errorf("%s gives %q, want %q", call, got, want)
			}
		case <-time.After(patience):
			p.t.Fatalf("%s does not return", call)
		}
	}
}

func TestCUDAProgramIsAClient(t *testing.T) {
	path := compileProgram(t)
	g := newGPU(t)
	mps := []string{"CUDA_MPS_PIPE_DIRECTORY=" + g.pipe(), "CUDA_VISIBLE_DEVICES=" + g.uuid}
	p := startProgram(t, path, mps...)
	p.expect("count: count 0 3 CUDA_ERROR_NOT_INITIALIZED", "version: version 13000 0 CUDA_SUCCESS", "init", "init")
	if got, want := g.clients(), fmt.Sprint(p.cmd.Process.Pid); got != want {
		t.Errorf("clients after cuInit %q, want %q", got, want)
	}
	p.expect("count: count 1 0 CUDA_SUCCESS", "uuid 0: uuid "+g.uuid[4:6]+g.uuid[len(g.uuid)-2:]+" 0 CUDA_SUCCESS",
		"alloc 1: 201 CUDA_ERROR_INVALID_CONTEXT", "retain 1: 101 CUDA_ERROR_INVALID_DEVICE",
		"retain 0", "alloc 1048576", "memset", "memset 1048577: 1 CUDA_ERROR_INVALID_VALUE")
	if got := fakegpu.ReadUsage(g.state, g.uuid).Clients[0].Memory; got != 1<<20 {
		t.Errorf("the client has %d bytes, want %d", got, 1<<20)
	}
	p.expect("sync", "free", "free: 1 CUDA_ERROR_INVALID_VALUE", "alloc 99999999999999: 2 CUDA_ERROR_OUT_OF_MEMORY",
		"release 0", "release 0: 201 CUDA_ERROR_INVALID_CONTEXT")
	eventually(t, "the client said good-bye", func() bool { return g.clients() == "" })
	p.expect("unknown: -1 - without text", "retain 0", "alloc 1048576", "memset")
	neighbour := startProgram(t, path, mps...)
	neighbour.expect("init", "retain 0")
	// It dies between memset and synchronise, which is a fault of all.
	p.kill()
	neighbour.eventually("sync", "700 CUDA_ERROR_ILLEGAL_ADDRESS")
	startProgram(t, path, mps...).expect("init: 807 CUDA_ERROR_MPS_SERVER_NOT_READY")
	neighbour.kill()
	eventually(t, "the server is active again", func() bool { return g.status() == "ACTIVE" })
	startProgram(t, path, mps...).expect("init", "retain 0")

	g.order(func(d *fakegpu.Device) { d.MPS.Wedge = true })
	blocked := startProgram(t, path, mps...)
	fmt.Fprintln(blocked.in, "init")
	select {
	case got := <-blocked.lines:
		t.Errorf("cuInit under a wedged server gives %q", got)
	case <-time.After(500 * time.Millisecond):
	}
	blocked.kill()
	g.restart()
	startProgram(t, path, mps...).expect("init", "retain 0")
}

func TestCUDAErrorsOfMPS(t *testing.T) {
	path := compileProgram(t)
	g := newGPU(t)
	mps := []string{"CUDA_MPS_PIPE_DIRECTORY=" + g.pipe(), "CUDA_VISIBLE_DEVICES=" + g.uuid}
	terminated, broken := startProgram(t, path, mps...), startProgram(t, path, mps...)
	for _, p := range []*program{terminated, broken} {
		p.expect("init", "retain 0", "alloc 64")
	}
	g.expect(fmt.Sprintf("terminate_client %s %d", g.server(), terminated.cmd.Process.Pid), "", 0)
	terminated.eventually("sync", "810 CUDA_ERROR_MPS_CLIENT_TERMINATED")
	broken.expect("sync")
	g.order(func(d *fakegpu.Device) { d.MPS.Fault = true })
	broken.eventually("sync", "700 CUDA_ERROR_ILLEGAL_ADDRESS")
	broken.expect("alloc 1: 700 CUDA_ERROR_ILLEGAL_ADDRESS")
	startProgram(t, path, mps...).expect("init: 807 CUDA_ERROR_MPS_SERVER_NOT_READY")
	terminated.kill()
	broken.kill()
	eventually(t, "the server is active again", func() bool { return g.status() == "ACTIVE" })

	gone := startProgram(t, path, mps...)
	gone.expect("init", "retain 0")
	g.restart()
	gone.eventually("sync", "806 CUDA_ERROR_MPS_RPC_FAILURE")

	for range 48 {
		g.dial(fakegpu.ClientLoad{})
	}
	startProgram(t, path, mps...).expect("init: 808 CUDA_ERROR_MPS_MAX_CLIENTS_REACHED")
}

// eventually makes a call until it gives what is wanted: the daemon tells clients at its own time.
func (p *program) eventually(call, want string) {
	p.t.Helper()
	eventually(p.t, call+" gives "+want, func() bool {
		fmt.Fprintln(p.in, call)
		return <-p.lines == want
	})
}

func TestCUDAWithoutMPS(t *testing.T) {
	path := compileProgram(t)
	s := node(t, "A100", 2)
	state := write(t, s)
	one, two := startProgram(t, path), startProgram(t, path)
	one.expect("init", "count: count 2 0 CUDA_SUCCESS", "retain 0", "alloc 1073741824", "memset", "sync")
	two.expect("init", "retain 0")
	if got := len(fakegpu.Contexts(state, s.Devices[0].UUID)); got != 2 {
		t.Errorf("%d contexts, want 2", got)
	}
	two.kill()
	contexts := fakegpu.Contexts(state, s.Devices[0].UUID)
	if len(contexts) != 1 || int(contexts[0].PID) != one.cmd.Process.Pid || contexts[0].Memory != 1<<30 {
		t.Errorf("contexts %+v, want one of process %d with 1 GiB", contexts, one.cmd.Process.Pid)
	}

	must.OK(t, fakegpu.Update(state, func(s *fakegpu.State) { s.Devices[0].ComputeMode, s.Devices[1].ComputeMode = 3, 2 }))
	three := startProgram(t, path)
	three.expect("init", "retain 0: 46 CUDA_ERROR_DEVICE_UNAVAILABLE", "retain 1: 46 CUDA_ERROR_DEVICE_UNAVAILABLE")
	one.expect("release 0")
	three.expect("retain 0")

	startProgram(t, path, "CUDA_VISIBLE_DEVICES=").expect("init: 100 CUDA_ERROR_NO_DEVICE")
	startProgram(t, path, "CUDA_VISIBLE_DEVICES="+s.Devices[1].UUID+",nobody,0").expect("init", "count: count 1 0 CUDA_SUCCESS")
	startProgram(t, path, fakegpu.StateVariable+"=/nonexistent").expect("init: 100 CUDA_ERROR_NO_DEVICE")
}

// In exclusive mode the MPS server is the one process that may use the device.
func TestExclusiveModeIsANetUnderMPS(t *testing.T) {
	path := compileProgram(t)
	g := newGPU(t)
	g.order(func(d *fakegpu.Device) { d.ComputeMode = 3 })
	p := startProgram(t, path, "CUDA_MPS_PIPE_DIRECTORY="+g.pipe())
	p.expect("init", "retain 0")
	startProgram(t, path, "CUDA_MPS_PIPE_DIRECTORY=/nonexistent").expect("init", "retain 0: 46 CUDA_ERROR_DEVICE_UNAVAILABLE")
}
