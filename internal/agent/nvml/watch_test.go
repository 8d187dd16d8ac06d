package nvml

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// queue is an event set that gives out what it was given, and then says "timeout".
func queue(s *server.Server, events ...nvml.EventData) *mock.EventSet {
	set := &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS }}
	set.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) {
		if len(events) == 0 {
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		}
		e := events[0]
		events = events[1:]
		return e, nvml.SUCCESS
	}
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS }
	for _, d := range s.Devices {
		d.(*server.Device).RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	}
	return set
}

func xidEvent(d nvml.Device, xid uint64, gi, ci uint32) nvml.EventData {
	return nvml.EventData{Device: d, EventType: nvml.EventTypeXidCriticalError, EventData: xid, GpuInstanceId: gi, ComputeInstanceId: ci}
}

// watchAll reads what a Watch reports before the first timeout.
func watchAll(t *testing.T, s *server.Server) []Event {
	t.Helper()
	w, err := mustOpen(t, s).watcher()
	must.OK(t, err)
	defer w.free()
	events, err := w.next()
	must.OK(t, err)
	return events
}

func TestEqualErrorsOfOneMomentAreOneEvent(t *testing.T) {
	s := newServer(wiring{})
	a, b := s.Devices[0], s.Devices[1]
	whole := func(d nvml.Device, xid uint64) nvml.EventData { return xidEvent(d, xid, wholeDevice, wholeDevice) }
	set := queue(
		s, whole(a, 31), whole(b, 31), whole(a, 31), whole(a, 79), whole(a, 31),
		nvml.EventData{Device: a, EventType: nvml.EventTypeClock, EventData: 95}, // not an XID
		whole(&mock.Device{}, 95), // of nobody
		whole(nil, 95),
	)
	one, two := a.(*server.Device).UUID, b.(*server.Device).UUID
	if diff := cmp.Diff([]Event{
		{UUID: one, XID: 31, Class: Application, Count: 3},
		{UUID: two, XID: 31, Class: Application, Count: 1},
		{UUID: one, XID: 79, Class: Reboot, Critical: true, Count: 1},
	}, watchAll(t, s)); diff != "" {
		t.Error(diff)
	}
	for i, call := range set.WaitCalls() {
		if want := map[bool]uint32{true: watchStepMillis}[i == 0]; call.V != want {
			t.Errorf("wait %d is for %d ms, want %d: only the first error is waited for", i, call.V, want)
		}
	}
}

func TestErrorsOfMIGInstances(t *testing.T) {
	const none = wholeDevice
	for name, test := range map[string]struct {
		gi, ci uint32
		want   []string
	}{
		"one compute instance":    {1, 1, []string{"MIG-b"}},
		"one GPU instance":        {1, none, []string{"MIG-a", "MIG-b"}},
		"whole device":            {none, none, []string{"MIG-a", "MIG-b", "MIG-c"}},
		"instance that is new":    {5, 0, []string{"MIG-a", "MIG-b", "MIG-c"}},
		"other GPU instance":      {2, 0, []string{"MIG-c"}},
		"only the CI, which lies": {none, 0, []string{"MIG-a", "MIG-b", "MIG-c"}},
	} {
		s := newServer(wiring{})
		gpu := s.Devices[4].(*server.Device)
		splitIn(gpu, migDevice("MIG-a", "1c.3g.20gb", 1, 0, 20<<30), migDevice("MIG-b", "1c.3g.20gb", 1, 1, 20<<30),
			migDevice("MIG-c", "3g.20gb", 2, 0, 20<<30))
		queue(s, xidEvent(gpu, 94, test.gi, test.ci), xidEvent(gpu, 94, test.gi, test.ci))
		var got []string
		for _, e := range watchAll(t, s) {
			got = append(got, e.UUID)
			if e.XID != 94 || e.Class != Contained || !e.Critical || e.Count != 2 {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// In a storm that never ends, no report stands for more than one burst, and a critical error gets through.
func TestStorm(t *testing.T) {
	s := newServer(wiring{})
	set := queue(s)
	const critical = 5000
	n := 0
	set.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) {
		n++
		if n == critical {
			return xidEvent(s.Devices[1], 79, wholeDevice, wholeDevice), nvml.SUCCESS
		}
		return xidEvent(s.Devices[0], 31, wholeDevice, wholeDevice), nvml.SUCCESS
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reports, errors := 0, 0
	err := mustOpen(t, s).Watch(ctx, func(e Event) {
		reports++
		errors += e.Count
		if e.Count > maxBurst {
			t.Errorf("%d errors in one report", e.Count)
		}
		if e.XID == 79 {
			cancel()
		}
	})
	if err != nil || n < critical || n > critical+maxBurst || errors != n {
		t.Errorf("%v: %d errors taken, %d reported", err, n, errors)
	}
	if most := n/maxBurst + 2; reports > most {
		t.Errorf("%d reports for %d errors, want at most %d", reports, n, most)
	}
}

// Different errors do not add up either: the work for a burst is bounded by its length.
func TestStormOfDifferentErrors(t *testing.T) {
	s := newServer(wiring{})
	set := queue(s)
	n := uint64(0)
	set.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) {
		n++
		return xidEvent(s.Devices[n%8], n, wholeDevice, wholeDevice), nvml.SUCCESS
	}
	if events := watchAll(t, s); len(events) != maxBurst || n != maxBurst {
		t.Errorf("%d events of %d errors, want %d", len(events), n, maxBurst)
	}
}

func TestWatchLeavesOutDevicesThatFail(t *testing.T) {
	s := newServer(wiring{})
	queue(s, xidEvent(s.Devices[0], 48, wholeDevice, wholeDevice))
	s.Devices[5].(*server.Device).RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.ERROR_UNKNOWN }
	defer lose(s, 6)()
	if events := watchAll(t, s); len(events) != 1 || events[0].XID != 48 {
		t.Errorf("%+v", events)
	}
	for _, d := range s.Devices {
		d.(*server.Device).RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.ERROR_UNKNOWN }
	}
	if _, err := mustOpen(t, s).watcher(); err == nil {
		t.Error("a watch of nothing, because everything fails")
	}
}

// A device that was lost when Watch began is heard once it is back, and nobody is registered twice.
func TestWatchTakesUpDevicesThatComeBack(t *testing.T) {
	s := newServer(wiring{})
	set := queue(s)
	set.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) {
		return xidEvent(s.Devices[3], 48, wholeDevice, wholeDevice), nvml.SUCCESS
	}
	registered := map[int]int{}
	for i, d := range s.Devices {
		d.(*server.Device).RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return {
			registered[i]++
			if i == 5 {
				return nvml.ERROR_NOT_SUPPORTED
			}
			return nvml.SUCCESS
		}
	}
	back := lose(s, 3)
	w, err := mustOpen(t, s).watcher()
	must.OK(t, err)
	defer w.free()
	if events, err := w.next(); len(events) != 0 || err != nil {
		t.Fatalf("events of a device that is not watched: %+v (%v)", events, err)
	}
	back()
	for range 2 {
		w.registered = time.Now().Add(-time.Hour)
		events, err := w.next()
		if err != nil || len(events) != 1 || events[0].UUID != s.Devices[3].(*server.Device).UUID {
			t.Errorf("%+v (%v)", events, err)
		}
	}
	for i := range s.Devices {
		if registered[i] != 1 {
			t.Errorf("device %d was registered %d times", i, registered[i])
		}
	}
}

// The last errors before the driver fails are reported.
func TestWatchReportsBeforeItFails(t *testing.T) {
	s := newServer(wiring{})
	set := queue(s)
	n := 0
	set.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) {
		if n++; n == 1 {
			return xidEvent(s.Devices[2], 79, wholeDevice, wholeDevice), nvml.SUCCESS
		}
		return nvml.EventData{}, nvml.ERROR_GPU_IS_LOST
	}
	var got []Event
	err := mustOpen(t, s).Watch(t.Context(), func(e Event) { got = append(got, e) })
	if err == nil || len(got) != 1 || got[0].XID != 79 {
		t.Errorf("%v after %+v", err, got)
	}
	if len(set.FreeCalls()) != 1 {
		t.Error("the event set was not freed")
	}
}

// A library that is opened again makes handles stale: the set is not touched any more. Watch does not keep the opening
// waiting for ever, though it is inside of the library nearly all the time.
func TestWatchEndsWhenTheLibraryIsOpenedAgain(t *testing.T) {
	s := newServer(wiring{})
	set := queue(s)
	waiting := make(chan struct{}, 1)
	set.WaitFunc = func(uint32) (nvml.EventData, nvml.Return) {
		select {
		case waiting <- struct{}{}:
		default:
		}
		time.Sleep(20 * time.Millisecond)
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
	l := mustOpen(t, s)
	mustList(t, l)
	done := make(chan error)
	go func() { done <- l.Watch(t.Context(), func(Event) {}) }()
	<-waiting
	defer lose(s, 3)()
	l.mu.Lock()
	l.opened = time.Now().Add(-time.Hour)
	l.mu.Unlock()
	mustList(t, l)
	select {
	case err := <-done:
		if !errors.Is(err, errReopened) {
			t.Errorf("Watch ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Watch goes on with stale handles")
	}
	if n := len(set.FreeCalls()); n != 0 {
		t.Errorf("a stale set was freed %d times", n)
	}
}

// Report may ask the driver: no lock is held.
func TestReportMayAsk(t *testing.T) {
	s := newServer(wiring{})
	queue(s, xidEvent(s.Devices[0], 48, wholeDevice, wholeDevice))
	l := mustOpen(t, s)
	mustList(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var health Health
	done := make(chan error)
	go func() {
		done <- l.Watch(ctx, func(e Event) {
			health = Health{Message: fmt.Sprint(l.exclude())}
			l.gate.Unlock()
			cancel()
		})
	}()
	select {
	case err := <-done:
		if err != nil || health.Message != "true" {
			t.Errorf("%v, alone in the library: %s", err, health.Message)
		}
	case <-time.After(patience):
		t.Fatal("stuck")
	}
}
