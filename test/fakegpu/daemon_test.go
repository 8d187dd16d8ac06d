package fakegpu_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// gpu is a node with one GPU and its MPS daemon.
type gpu struct {
	*controller
	uuid  string
	state string
}

func newGPU(t *testing.T, args ...string) *gpu {
	t.Helper()
	s := node(t, "A100", 1)
	g := &gpu{uuid: s.Devices[0].UUID, state: write(t, s)}
	g.controller = newController(t, g.uuid)
	g.expect("", "", 0, append([]string{"-d"}, args...)...)
	return g
}

func (g *gpu) pipe() string { return g.dir + "/pipe" }

// order changes the state file.
func (g *gpu) order(change func(*fakegpu.Device)) {
	g.t.Helper()
	must.OK(g.t, fakegpu.Update(g.state, func(s *fakegpu.State) { change(&s.Devices[0]) }))
}

// patience is what only a hang reaches, on whatever machine.
const patience = 5 * time.Minute

// dial connects a client, which must work.
func (g *gpu) dial(load fakegpu.ClientLoad) *fakegpu.Client {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	c, err := fakegpu.Dial(ctx, g.pipe(), load)
	must.OK(g.t, err)
	g.t.Cleanup(c.Close)
	return c
}

// refused connects a client, which must fail.
func (g *gpu) refused(load fakegpu.ClientLoad, want error) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	c, err := fakegpu.Dial(ctx, g.pipe(), load)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, want) {
		g.t.Errorf("Dial: %v, want %v", err, want)
	}
}

// blocks says whether a new client gets no answer for a while. One that must get an answer is dialled instead: it may take its time.
func (g *gpu) blocks() bool {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 500*time.Millisecond)
	defer cancel()
	c, err := fakegpu.Dial(ctx, g.pipe(), fakegpu.ClientLoad{})
	if err == nil {
		c.Close()
		return false
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		g.t.Errorf("Dial: %v", err)
	}
	return true
}

func (g *gpu) say(command string) string {
	g.t.Helper()
	out, code := g.run(command)
	if code != 0 {
		g.t.Fatalf("%s: exit status %d, %s", command, code, out)
	}
	return out
}

func (g *gpu) server() string { return g.say("get_server_list") }
func (g *gpu) status() string { return g.say("get_server_status " + g.server()) }

func (g *gpu) clients() string {
	return strings.ReplaceAll(g.say("get_client_list "+g.server()), "\n", " ")
}

func (g *gpu) pid() int {
	g.t.Helper()
	raw, err := os.ReadFile(g.pipe() + "/nvidia-cuda-mps-control.pid")
	must.OK(g.t, err)
	pid, err := strconv.Atoi(string(raw))
	must.OK(g.t, err)
	return pid
}

func (g *gpu) restart() {
	g.t.Helper()
	old := g.pid()
	g.say("quit -t 0")
	eventually(g.t, "the daemon has quit", func() bool { return !running(strconv.Itoa(old)) })
	g.expect("", "", 0, "-d")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// ended waits until a client can no longer use the device.
func ended(t *testing.T, c *fakegpu.Client, want error) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatalf("the client goes on, want %v", want)
	}
	if err := c.Err(); !errors.Is(err, want) {
		t.Errorf("the client ended with %v, want %v", err, want)
	}
}

func TestClientStartsTheServerAndIsListed(t *testing.T) {
	g := newGPU(t)
	if got := g.server(); got != "" {
		t.Fatalf("servers %q before the first client", got)
	}
	a := g.dial(fakegpu.ClientLoad{})
	if got := g.server(); got != strconv.Itoa(a.Server()) {
		t.Errorf("server %q, the client was told %d", got, a.Server())
	}
	// The process at the other end of the socket, once for all its contexts.
	g.dial(fakegpu.ClientLoad{})
	b := g.dial(fakegpu.ClientLoad{PID: 70})
	if got, want := g.clients(), fmt.Sprintf("%d 70", os.Getpid()); got != want {
		t.Errorf("clients %q, want %q", got, want)
	}
	b.Close()
	ended(t, b, nil)
	eventually(t, "the client is off the list", func() bool { return g.clients() == strconv.Itoa(os.Getpid()) })
}

func TestTerminatedClientDoesNoHarm(t *testing.T) {
	g := newGPU(t)
	victim, other := g.dial(fakegpu.ClientLoad{PID: 70, InFlight: true}), g.dial(fakegpu.ClientLoad{PID: 71, InFlight: true})
	g.expect("terminate_client "+g.server()+" 70", "", 0)
	ended(t, victim, fakegpu.ErrTerminated)
	if err := victim.Load(fakegpu.ClientLoad{}); !errors.Is(err, fakegpu.ErrTerminated) {
		t.Errorf("Load of the terminated: %v", err)
	}
	if got := g.clients(); got != "71" {
		t.Errorf("clients %q, want 71", got)
	}
	victim.Abandon()
	g.dial(fakegpu.ClientLoad{}).Close()
	if err := other.Load(fakegpu.ClientLoad{Memory: 1 << 30}); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
}

// A kill in flight is a fault of all: neighbours are broken and newcomers refused until the old ones have gone, and then
// the same server serves. Other ends harm nobody.
func TestKillWithWorkInFlightIsAFaultOfAll(t *testing.T) {
	g := newGPU(t)
	neighbour := g.dial(fakegpu.ClientLoad{PID: 71, Memory: 1 << 30})
	g.dial(fakegpu.ClientLoad{PID: 72}).Abandon()
	g.dial(fakegpu.ClientLoad{}).Close()
	g.dial(fakegpu.ClientLoad{PID: 73, InFlight: true}).Close()
	g.dial(fakegpu.ClientLoad{}).Close()
	if err := neighbour.Load(fakegpu.ClientLoad{Memory: 2 << 30}); err != nil {
		t.Errorf("the neighbour of those who harm nobody: %v", err)
	}
	idle := g.dial(fakegpu.ClientLoad{PID: 75})
	server := g.server()
	g.dial(fakegpu.ClientLoad{PID: 74, InFlight: true}).Abandon()
	for _, last := range []*fakegpu.Client{neighbour, idle} {
		ended(t, last, fakegpu.ErrFault)
		if got := g.status(); got != "FAULT" {
			t.Errorf("status %s, want FAULT", got)
		}
		g.refused(fakegpu.ClientLoad{}, fakegpu.ErrFault)
		last.Abandon()
	}
	eventually(t, "the server is active again", func() bool { return g.status() == "ACTIVE" })
	g.dial(fakegpu.ClientLoad{}).Close()
	if got := g.server(); got != server {
		t.Errorf("server %s, was %s", got, server)
	}
}

// A client that nobody is beside has nobody to break.
func TestKillWithWorkInFlightAlone(t *testing.T) {
	g := newGPU(t)
	c := g.dial(fakegpu.ClientLoad{InFlight: true})
	c.Abandon()
	eventually(t, "the daemon has noticed", func() bool { return g.clients() == "" })
	if next := g.dial(fakegpu.ClientLoad{}); next.Server() != c.Server() {
		t.Error("the server was replaced")
	}
}

// The wedge comes by order: clients that are there go on, commands show nothing, and newcomers wait until there is a new
// server.
func TestWedge(t *testing.T) {
	g := newGPU(t)
	neighbour := g.dial(fakegpu.ClientLoad{PID: 71, Memory: 1 << 30})
	g.order(func(d *fakegpu.Device) { d.MPS.Wedge = true })
	for range 2 {
		if !g.blocks() {
			t.Fatal("newcomers to a wedged server are served")
		}
	}
	if got := g.status(); got != "ACTIVE" {
		t.Errorf("status %s, want ACTIVE", got)
	}
	if err := neighbour.Load(fakegpu.ClientLoad{Memory: 2 << 30}); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	g.restart()
	ended(t, neighbour, fakegpu.ErrGone)
	g.dial(fakegpu.ClientLoad{}).Close()
}

func TestBlockedClientEndsWithItsServer(t *testing.T) {
	g := newGPU(t)
	g.dial(fakegpu.ClientLoad{}).Close()
	g.order(func(d *fakegpu.Device) { d.MPS.Wedge = true })
	if got := g.status(); got != "ACTIVE" { // and the server has the order
		t.Errorf("status %s, want ACTIVE", got)
	}
	blocked := make(chan error)
	go func() {
		_, err := fakegpu.Dial(t.Context(), g.pipe(), fakegpu.ClientLoad{})
		blocked <- err
	}()
	select {
	case err := <-blocked:
		t.Fatalf("not blocked: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	g.say("shutdown_server " + g.server() + " -f")
	if err := <-blocked; !errors.Is(err, fakegpu.ErrGone) {
		t.Errorf("the blocked client ended with %v, want %v", err, fakegpu.ErrGone)
	}
	g.dial(fakegpu.ClientLoad{}).Close()
}

func TestFaultBreaksAllUntilTheLastHasGone(t *testing.T) {
	g := newGPU(t)
	one, two := g.dial(fakegpu.ClientLoad{PID: 70, InFlight: true}), g.dial(fakegpu.ClientLoad{PID: 71})
	must.OK(t, one.Fault())
	ended(t, one, fakegpu.ErrFault)
	ended(t, two, fakegpu.ErrFault)
	server := g.server()
	for _, last := range []*fakegpu.Client{one, two} {
		if got := g.status(); got != "FAULT" {
			t.Errorf("status %s, want FAULT", got)
		}
		g.refused(fakegpu.ClientLoad{}, fakegpu.ErrFault)
		last.Abandon()
	}
	eventually(t, "the server is active again", func() bool { return g.status() == "ACTIVE" })
	g.dial(fakegpu.ClientLoad{})
	if got := g.server(); got != server {
		t.Errorf("server %s, was %s", got, server)
	}
}

func TestClientsEndWithTheirServer(t *testing.T) {
	g := newGPU(t)
	c := g.dial(fakegpu.ClientLoad{InFlight: true})
	must.OK(t, syscall.Kill(c.Server(), syscall.SIGKILL))
	ended(t, c, fakegpu.ErrGone)
	eventually(t, "the daemon has noticed", func() bool { return g.server() == "" })
	if again := g.dial(fakegpu.ClientLoad{}); again.Server() == c.Server() {
		t.Error("no new server")
	}
}

func TestServersAndClientsEndWithTheDaemon(t *testing.T) {
	g := newGPU(t)
	c := g.dial(fakegpu.ClientLoad{Memory: 1 << 30})
	if got := fakegpu.ReadUsage(g.state, g.uuid).Server.PID; got != c.Server() {
		t.Errorf("usage names server %d, want %d", got, c.Server())
	}
	must.OK(t, syscall.Kill(g.pid(), syscall.SIGKILL))
	ended(t, c, fakegpu.ErrGone)
	eventually(t, "nobody uses the device", func() bool {
		return cmp.Equal(fakegpu.Usage{}, fakegpu.ReadUsage(g.state, g.uuid))
	})
	g.expect("", "", 0, "-d")
	g.dial(fakegpu.ClientLoad{})
}

func TestQuitWaitsForClients(t *testing.T) {
	g := newGPU(t)
	c := g.dial(fakegpu.ClientLoad{InFlight: true})
	quit := make(chan struct{})
	go func() {
		defer close(quit)
		g.run("quit")
	}()
	eventually(t, "newcomers are refused", func() bool {
		newcomer, err := fakegpu.Dial(t.Context(), g.pipe(), fakegpu.ClientLoad{})
		if err == nil {
			newcomer.Close()
		}
		return errors.Is(err, fakegpu.ErrGone)
	})
	select {
	case <-quit:
		t.Error("quit did not wait for the client")
	case <-c.Done():
		t.Errorf("quit ended the client: %v", c.Err())
	default:
	}
	c.Close()
	<-quit
	g.expect("get_server_list", "Cannot find MPS control daemon process", 1)
	if _, err := os.Stat(fakegpu.UsagePath(g.state, g.uuid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the usage outlives the daemon: %v", err)
	}
}
