package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/cuda"
	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// served is a device with a daemon that the production canary tries.
type served struct {
	t     *testing.T
	dir   string
	state string
	uuid  string
	mps   *mps.V2
}

func newServed(t *testing.T, timeout time.Duration) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	must.OK(t, err)
	state, err := fakegpu.Node(nodeName, "A100", 1)
	must.OK(t, err)
	s := &served{t: t, dir: dir, state: filepath.Join(dir, "gpus.json"), uuid: state.Devices[0].UUID}
	must.OK(t, state.Write(s.state))
	for _, e := range fakegpu.Env(built, s.state) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	s.mps = mps.NewV2(mps.Options{
		Dir: filepath.Join(dir, "mps"), Canary: []string{filepath.Join(built, "agent"), "canary"}, CanaryTimeout: timeout, Timeout: time.Minute,
	})
	must.OK(t, s.mps.Ensure(t.Context(), s.spec()))
	t.Cleanup(func() {
		if err := s.mps.Stop(context.Background(), s.uuid); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return s
}

func (s *served) spec() mps.DeviceSpec { return mps.DeviceSpec{UUID: s.uuid} }
func (s *served) pipe() string         { return filepath.Join(s.dir, "mps", s.uuid, "pipe") }

func (s *served) client(load fakegpu.ClientLoad) *fakegpu.Client {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	c, err := fakegpu.Dial(ctx, s.pipe(), load)
	must.OK(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

func (s *served) clients() []int {
	s.t.Helper()
	d, err := s.mps.Look(s.t.Context(), s.uuid)
	must.OK(s.t, err)
	var pids []int
	for _, server := range d.Servers {
		pids = append(pids, server.Clients...)
	}
	return pids
}

func TestCanaryDoesItsWorkAndLeaves(t *testing.T) {
	s := newServed(t, time.Minute)
	for range 2 {
		must.OK(t, s.mps.Probe(t.Context(), s.spec()))
	}
	eventually(t, "the server that the canary started, without clients", func() error { // the daemon learns of an end after it
		d, err := s.mps.Look(t.Context(), s.uuid)
		if err == nil && (len(d.Servers) != 1 || len(d.Servers[0].Clients) != 0) {
			err = fmt.Errorf("%+v", d)
		}
		return err
	})
}

func TestCanaryFindsAWedge(t *testing.T) {
	s := newServed(t, 2*time.Second)
	neighbour := s.client(fakegpu.ClientLoad{PID: 80})
	must.OK(t, fakegpu.Update(s.state, func(state *fakegpu.State) { state.Devices[0].MPS.Wedge = true }))
	if err := s.mps.Ready(t.Context(), s.uuid); err != nil {
		t.Errorf("Ready: %v, want that the control plane notices nothing", err)
	}
	if err := s.mps.Probe(t.Context(), s.spec()); !errors.Is(err, mps.ErrProbeTimeout) {
		t.Errorf("Probe: %v, want %v", err, mps.ErrProbeTimeout)
	}
	if err := neighbour.Load(fakegpu.ClientLoad{SM: 7}); err != nil {
		t.Errorf("the neighbour was disturbed: %v", err)
	}
	must.OK(t, s.mps.Recycle(t.Context(), s.spec()))
	// The time of this canary is short, so that the wedge is soon found: on a busy machine it may be too short for one that works.
	eventually(t, "the new server serves", func() error { return s.mps.Probe(t.Context(), s.spec()) })
}

func TestCanaryFindsAFault(t *testing.T) {
	s := newServed(t, time.Minute)
	resident, culprit := s.client(fakegpu.ClientLoad{PID: 80}), s.client(fakegpu.ClientLoad{PID: 70})
	must.OK(t, culprit.Fault())
	if err := s.mps.Probe(t.Context(), s.spec()); !errors.Is(err, mps.ErrFault) {
		t.Errorf("Probe: %v, want %v", err, mps.ErrFault)
	}
	resident.Close()
	culprit.Close()
	eventually(t, "the server serves again", func() error { return s.mps.Probe(t.Context(), s.spec()) })
}

// A device that is full serves those that it has.
func TestCanaryOfAFullDevice(t *testing.T) {
	s := newServed(t, time.Minute)
	state, err := fakegpu.Load(s.state)
	must.OK(t, err)
	limit := state.ContextLimit(s.uuid)
	for i := range limit {
		s.client(fakegpu.ClientLoad{PID: 100 + i})
	}
	if err := s.mps.Probe(t.Context(), s.spec()); err != nil {
		t.Errorf("Probe: %v, want none", err)
	}
	if got := len(s.clients()); got != limit {
		t.Errorf("%d clients are left, want %d", got, limit)
	}
}

func TestCanaryWithoutTheLibrary(t *testing.T) {
	s := newServed(t, time.Minute)
	t.Setenv("LD_LIBRARY_PATH", "")
	if err := s.mps.Probe(t.Context(), s.spec()); !errors.Is(err, mps.ErrNoCUDA) || !strings.Contains(err.Error(), "libcuda.so.1") {
		t.Errorf("Probe: %v, want %v", err, mps.ErrNoCUDA)
	}
}

// A canary whose parent is gone does no work, and by hand it says in its exit status whether all was well.
func TestCanaryByHand(t *testing.T) {
	s := newServed(t, time.Minute)
	run := func(in io.Reader, env ...string) (string, error) {
		c := exec.Command(filepath.Join(built, "agent"), "canary")
		c.Env = append(os.Environ(), append(env, mps.PipeVariable+"="+s.pipe())...)
		c.Stdin = in
		var out bytes.Buffer
		c.Stdout = &out
		err := c.Run()
		return out.String(), err
	}
	if out, err := run(strings.NewReader("go\n")); err != nil || out != "connected\nwell\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := run(nil); err != nil || out != "connected\nwell\n" {
		t.Errorf("without a word: %q, %v", out, err)
	}
	if out, err := run(nil, "LD_LIBRARY_PATH="); err == nil || !strings.HasPrefix(out, "no-cuda ") {
		t.Errorf("without the library: %q, %v", out, err)
	}
}

func TestVerdictOfErrors(t *testing.T) {
	for want, errs := range map[mps.Verdict][]error{
		mps.VerdictWell:     {nil},
		mps.VerdictNoCUDA:   {cuda.ErrNoLibrary, &cuda.Error{Code: 34}},
		mps.VerdictFull:     {&cuda.Error{Code: 2}, &cuda.Error{Code: 808}, &cuda.Error{Code: 809}},
		mps.VerdictNotReady: {&cuda.Error{Code: 807}},
		mps.VerdictFault:    {&cuda.Error{Code: 719}, errors.Join(&cuda.Error{Code: 700}, &cuda.Error{Code: 2}), &cuda.Error{Code: 806}},
		mps.VerdictFailed:   {cuda.ErrNoDevice, &cuda.Error{Code: 999}, &cuda.Error{Code: 805}, errors.New("odd")},
	} {
		for _, err := range errs {
			if got := verdict(err); got != want {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		}
	}
}

// The host of the production binary starts daemons that an agent adopts and recycles.
func TestMPSHost(t *testing.T) {
	s := newServed(t, time.Minute)
	socket := filepath.Join(s.dir, "host.sock")
	host := exec.Command(filepath.Join(built, "agent"), "mps-host", "--socket="+socket, "--mps-dir="+filepath.Join(s.dir, "mps"))
	log := &buffer{}
	host.Stdout, host.Stderr = log, log
	must.OK(t, host.Start())
	t.Cleanup(func() {
		_ = host.Process.Signal(os.Interrupt)
		if err := host.Wait(); err != nil {
			t.Errorf("mps-host: %v\n%s", err, log)
		}
	})
	eventually(t, "mps-host listens", func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	agent := mps.NewV2(mps.Options{Dir: filepath.Join(s.dir, "mps"), Launcher: socket, Timeout: time.Minute})
	if err := agent.Recycle(t.Context(), s.spec()); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	eventually(t, "the host says that it started a daemon", func() error { // its words come through a pipe
		if said := log.String(); !strings.Contains(said, s.uuid) {
			return fmt.Errorf("it said %q", said)
		}
		return nil
	})
}
