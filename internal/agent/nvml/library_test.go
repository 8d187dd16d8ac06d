package nvml

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// The tests run in a process that finds the fake library first.
func TestMain(m *testing.M) { os.Exit(fakegpu.Run(m)) }

func openFake(t *testing.T, profile string, count int) (*Library, fakegpu.State, string) {
	t.Helper()
	s, err := fakegpu.Node("n1", profile, count)
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "state.json")
	must.OK(t, s.Write(path))
	t.Setenv(fakegpu.StateVariable, path)
	l, err := Open()
	must.OK(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, s, path
}

func update(t *testing.T, path string, change func(*fakegpu.State)) {
	t.Helper()
	must.OK(t, fakegpu.Update(path, change))
}

func TestDiscoveryOverTheABI(t *testing.T) {
	l, s, _ := openFake(t, "T4", 3)
	got, err := l.Devices()
	must.OK(t, err)
	// Two on one switch, the third on the next under the same host bridge; by peer UUID.
	one, two, three := s.Devices[0].UUID, s.Devices[1].UUID, s.Devices[2].UUID
	want := func(i int, bus string, links ...Link) Device {
		return Device{
			UUID: s.Devices[i].UUID, Index: i, Minor: i, Model: "Tesla-T4", Memory: (15360 - 393) << 20,
			Capability: Capability{7, 5}, PCIBusID: bus, NUMANode: 0, Links: links,
		}
	}
	pix, phb := v1alpha1.LinkPIX, v1alpha1.LinkPHB
	if diff := cmp.Diff([]Device{
		want(0, "00000000:07:00.0", Link{three, phb, 0}, Link{two, pix, 0}),
		want(1, "00000000:0F:00.0", Link{three, phb, 0}, Link{one, pix, 0}),
		want(2, "00000000:17:00.0", Link{two, phb, 0}, Link{one, phb, 0}),
	}, got); diff != "" {
		t.Error(diff)
	}
	if l.DriverVersion() != "580.95.05" || l.CUDAVersion() != 13000 {
		t.Errorf("driver %q, CUDA %d", l.DriverVersion(), l.CUDAVersion())
	}
}

// The eight V100 of a DGX-1: lanes from `nvidia-smi topo -m`, six at each device, and PCIe where none leads.
func TestCubeMesh(t *testing.T) {
	l, s, _ := openFake(t, "V100", 8)
	list, err := l.Devices()
	must.OK(t, err)
	path := func(from, to int) Link {
		for _, k := range list[from].Links {
			if k.Peer == s.Devices[to].UUID {
				return k
			}
		}
		t.Fatalf("no link %d to %d", from, to)
		return Link{}
	}
	for _, test := range []struct {
		from, to, lanes int
		kind            v1alpha1.LinkType
	}{
		{0, 1, 1, v1alpha1.LinkNVLink}, {0, 3, 2, v1alpha1.LinkNVLink}, {0, 4, 2, v1alpha1.LinkNVLink},
		{5, 6, 2, v1alpha1.LinkNVLink}, {0, 5, 0, v1alpha1.LinkSYS}, {3, 4, 0, v1alpha1.LinkSYS},
	} {
		if diff := cmp.Diff(Link{s.Devices[test.to].UUID, test.kind, test.lanes}, path(test.from, test.to)); diff != "" {
			t.Error(diff)
		}
	}
	for from := range list {
		sum := 0
		for to := range list {
			if from != to {
				sum += path(from, to).Lanes
				if path(from, to).Lanes != path(to, from).Lanes {
					t.Errorf("%d and %d do not agree on their lanes", from, to)
				}
			}
		}
		if sum != 6 {
			t.Errorf("device %d has %d lanes, want 6", from, sum)
		}
	}
}

func TestLanesThatAreDownDoNotCount(t *testing.T) {
	l, _, path := openFake(t, "A100", 2)
	update(t, path, func(s *fakegpu.State) {
		for i := range 3 {
			s.Devices[1].NVLinks[2*i].Down = true
		}
	})
	list, err := l.Devices()
	must.OK(t, err)
	for _, d := range list {
		if d.Links[0].Type != v1alpha1.LinkNVLink || d.Links[0].Lanes != 9 {
			t.Errorf("device %d: %+v, want 9 lanes of 12", d.Index, d.Links[0])
		}
	}
}

func TestHealthFollowsTheDevice(t *testing.T) {
	l, s, path := openFake(t, "A100", 2)
	uuid := s.Devices[0].UUID
	if h := l.Health(uuid); !h.OK() {
		t.Fatalf("health %+v", h)
	}
	update(t, path, func(s *fakegpu.State) { s.Devices[0].Lost = true })
	if h := l.Health(uuid); h.Reason != Lost || h.Message == "" {
		t.Errorf("lost device: %+v", h)
	}
	if h := l.Health(s.Devices[1].UUID); !h.OK() {
		t.Errorf("the other device: %+v", h)
	}
	if h := l.Health("GPU-nobody"); h.Reason != Lost {
		t.Errorf("unknown device: %+v", h)
	}
	update(t, path, func(s *fakegpu.State) { s.Devices[0].Lost = false })
	if h := l.Health(uuid); !h.OK() {
		t.Errorf("device that came back: %+v", h)
	}
	must.OK(t, os.WriteFile(path, []byte("{"), 0o644))
	if h := l.Health(uuid); h.Reason != NotAnswering {
		t.Errorf("driver that answers nothing: %+v", h)
	}
	if _, err := l.Devices(); err == nil {
		t.Error("Devices succeeded on a driver that answers nothing")
	}
}

// patience is what only a hang reaches, on whatever machine.
const patience = 5 * time.Minute

func TestWatchReportsErrorsInOrder(t *testing.T) {
	l, s, path := openFake(t, "A100", 2)
	update(t, path, func(s *fakegpu.State) { s.Events = []fakegpu.Event{{Device: 0, XID: 48}} })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := make(chan Event, 10)
	done := make(chan error)
	go func() { done <- l.Watch(ctx, func(e Event) { events <- e }) }()

	// Errors from before the watch are not reported; when it has begun, nobody says. So errors come until one is seen.
	var first Event
	for seen := false; !seen; {
		update(t, path, func(s *fakegpu.State) { s.Events = append(s.Events, fakegpu.Event{Device: 1, XID: 31}) })
		select {
		case first = <-events:
			seen = true
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("no event")
		}
	}
	first.Count = min(first.Count, 1) // those that came while it began are one event
	if diff := cmp.Diff(Event{UUID: s.Devices[1].UUID, XID: 31, Class: Application, Count: 1}, first); diff != "" {
		t.Error(diff)
	}
	update(t, path, func(s *fakegpu.State) {
		// A device that falls off the bus is lost at once; its last error still has its name.
		s.Devices[0].Lost = true
		s.Events = append(s.Events, fakegpu.Event{Device: 0, XID: 79})
	})
	last := first
	for last.XID == 31 {
		select {
		case last = <-events:
		case <-ctx.Done():
			t.Fatal("no XID 79")
		}
	}
	if diff := cmp.Diff(Event{UUID: s.Devices[0].UUID, XID: 79, Class: Reboot, Critical: true, Count: 1}, last); diff != "" {
		t.Error(diff)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Watch ended with %v", err)
	}
}

func TestWithoutLibraryOrDriver(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if _, err := open(nvml.New(nvml.WithLibraryPath(absent))); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("without library: %v, want %v", err, ErrNoLibrary)
	}
	t.Setenv(fakegpu.StateVariable, absent)
	if _, err := Open(); !errors.Is(err, ErrNoDriver) {
		t.Errorf("without driver: %v, want %v", err, ErrNoDriver)
	}
}
