package mps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// client connects as a program of its own.
func (n *node) client(pid int) *fakegpu.Client {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), tooLong)
	defer cancel()
	c, err := fakegpu.Dial(ctx, n.control().pipe, fakegpu.ClientLoad{PID: pid, InFlight: true})
	must.OK(n.t, err)
	n.t.Cleanup(c.Close)
	return c
}

func (n *node) look() Daemon {
	n.t.Helper()
	d, err := n.mps.Look(n.t.Context(), n.uuid)
	must.OK(n.t, err)
	return d
}

// clients that the daemon lists, in order of their PIDs.
func (n *node) clients() []int {
	pids := []int{}
	for _, s := range n.look().Servers {
		pids = append(pids, s.Clients...)
	}
	slices.Sort(pids)
	return pids
}

func ended(c *fakegpu.Client) error {
	select {
	case <-c.Done():
		return c.Err()
	case <-time.After(tooLong):
		return errors.New("it goes on")
	}
}

func goesOn(c *fakegpu.Client) bool {
	select {
	case <-c.Done():
		return false
	default:
		return c.Load(fakegpu.ClientLoad{InFlight: true, SM: 5}) == nil
	}
}

func TestEndClientsEndsThoseAndNoOthers(t *testing.T) {
	n := newNode(t)
	n.ensure()
	a, b, neighbour := n.client(70), n.client(71), n.client(80)
	got, err := n.mps.EndClients(t.Context(), n.uuid, []int{71, 70, 99, n.pid()})
	if slices.Sort(got); err != nil || !slices.Equal(got, []int{70, 71}) {
		t.Errorf("ended %v, %v; want 70 and 71", got, err)
	}
	for _, c := range []*fakegpu.Client{a, b} {
		if err := ended(c); !errors.Is(err, fakegpu.ErrTerminated) {
			t.Errorf("client: %v, want %v", err, fakegpu.ErrTerminated)
		}
	}
	if !goesOn(neighbour) {
		t.Errorf("the neighbour was disturbed: %v", neighbour.Err())
	}
	// The kill that follows does no harm now.
	a.Abandon()
	b.Abandon()
	n.client(90)
	if diff := cmp.Diff([]int{80, 90}, n.clients()); diff != "" {
		t.Error(diff)
	}
}

// A kill without that is a fault of all.
func TestKillAtWorkIsAFault(t *testing.T) {
	n := newNode(t)
	n.ensure()
	neighbour, victim := n.client(80), n.client(70)
	victim.Abandon()
	if err := ended(neighbour); !errors.Is(err, fakegpu.ErrFault) {
		t.Errorf("neighbour: %v, want %v", err, fakegpu.ErrFault)
	}
	if err := n.mps.Ready(t.Context(), n.uuid); !errors.Is(err, ErrFault) {
		t.Errorf("Ready: %v, want %v", err, ErrFault)
	}
	neighbour.Close()
	eventually(t, "the server has recovered", func() bool { return n.mps.Ready(t.Context(), n.uuid) == nil })
	n.client(90)
}

// The wedge is what users report, and comes by order: newcomers wait for ever while all looks well.
func TestOnlyRecycleHelpsAWedge(t *testing.T) {
	n := newNode(t)
	n.ensure()
	neighbour := n.client(80)
	n.order(func(m *fakegpu.MPS) { m.Wedge = true })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := fakegpu.Dial(ctx, n.control().pipe, fakegpu.ClientLoad{PID: 90}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a newcomer: %v, want that it waits", err)
	}
	if err := n.mps.Ready(t.Context(), n.uuid); err != nil || !goesOn(neighbour) {
		t.Errorf("Ready: %v, neighbour: %v; want that nobody notices", err, neighbour.Err())
	}
	n.recycle(n.mps)
	if err := ended(neighbour); !errors.Is(err, fakegpu.ErrGone) {
		t.Errorf("neighbour after Recycle: %v", err)
	}
	n.client(90)
}

func TestFaultIsSeenAndItsClientsCanBeEnded(t *testing.T) {
	n := newNode(t)
	n.ensure()
	culprit, neighbour := n.client(70), n.client(80)
	must.OK(t, culprit.Fault())
	if err := ended(neighbour); !errors.Is(err, fakegpu.ErrFault) {
		t.Errorf("neighbour: %v, want %v", err, fakegpu.ErrFault)
	}
	d := n.look()
	if len(d.Servers) != 1 || d.Servers[0].State != Fault {
		t.Fatalf("%+v, want one server with a fault", d)
	}
	if err := n.mps.Ready(t.Context(), n.uuid); !errors.Is(err, ErrFault) {
		t.Errorf("Ready: %v, want %v", err, ErrFault)
	}
	got, err := n.mps.EndClients(t.Context(), n.uuid, d.Servers[0].Clients)
	if err != nil || len(got) != len(d.Servers[0].Clients) {
		t.Errorf("ended %v of %v: %v", got, d.Servers[0].Clients, err)
	}
	culprit.Close()
	neighbour.Close()
	eventually(t, "the server has recovered", func() bool { return n.mps.Ready(t.Context(), n.uuid) == nil })
	n.client(90)
}

func TestRecycleCuresAFault(t *testing.T) {
	n := newNode(t)
	old := n.ensure()
	culprit := n.client(70)
	must.OK(t, culprit.Fault())
	if now := n.recycle(n.mps); now == old {
		t.Error("the daemon was not replaced")
	}
	n.client(90)
}

func TestEndClientsOfADaemonThatHangs(t *testing.T) {
	n := newNode(t)
	n.ensure()
	n.client(70)
	n.order(func(m *fakegpu.MPS) { m.Hang = true })
	if got, err := n.with(300*time.Millisecond).EndClients(t.Context(), n.uuid, []int{70}); !errors.Is(err, ErrNoAnswer) || len(got) != 0 {
		t.Errorf("ended %v, %v; want none and %v", got, err, ErrNoAnswer)
	}
}

func TestProbeOfAServerThatStarts(t *testing.T) {
	n := newNode(t)
	n.ensure()
	n.server()
	n.order(func(m *fakegpu.MPS) { m.Initializing = true })
	eventually(t, "the server starts", func() bool {
		d := n.look()
		return len(d.Servers) == 1 && d.Servers[0].State == Initializing
	})
	err := n.probe(n.withCanary("echo x > "+n.dir+"/here; exec sleep 600", tooLong), "here")
	if err == nil || errors.Is(err, ErrProbeTimeout) || errors.Is(err, ErrFault) {
		t.Errorf("Probe: %v, want neither a wedge nor a fault", err)
	}
	if err := n.mps.Ready(t.Context(), n.uuid); err != nil {
		t.Errorf("Ready: %v", err)
	}
}

// The test asks a kernel, since the kernel does what the documentation of Environment claims of a read-only mount: a
// client connects and opens pipes; it neither removes the socket nor writes the daemon's record.
func TestReadOnlyPipeDirectoryServesClients(t *testing.T) {
	n := newNode(t)
	n.ensure()
	must.OK(t, syscall.Mkfifo(n.pipe("log"), 0o666))
	seen := filepath.Join(n.dir, "seen")
	must.OK(t, os.Mkdir(seen, 0o755))
	if err := syscall.Mount(n.control().pipe, seen, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("this process may not mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(seen, syscall.MNT_DETACH) })
	must.OK(t, syscall.Mount("", seen, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	ctx, cancel := context.WithTimeout(t.Context(), tooLong)
	defer cancel()
	c, err := fakegpu.Dial(ctx, seen, fakegpu.ClientLoad{PID: 70})
	must.OK(t, err)
	defer c.Close()
	pipe, err := os.OpenFile(filepath.Join(seen, "log"), os.O_RDWR, 0)
	if err != nil {
		t.Errorf("open a pipe: %v", err)
	}
	_ = pipe.Close()
	for name, err := range map[string]error{
		"remove the socket": os.Remove(filepath.Join(seen, "control")),
		"write the record":  os.WriteFile(filepath.Join(seen, pidName), []byte("1"), 0o644),
		"add a file":        os.WriteFile(filepath.Join(seen, "x"), nil, 0o644),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v, want %v", name, err, syscall.EROFS)
		}
	}
}
