package nvml

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/tandem-gpu/tandem/test/must"
)

// newServer is a DGX A100 that answers everything that Devices, Health and Sample ask.
func newServer(w wiring) *server.Server {
	s := dgxa100.New()
	wire(s, w)
	return s
}

// ecc answers with a number of uncorrected errors, and with 5 corrected ones.
func ecc(uncorrected uint64) func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
	return func(kind nvml.MemoryErrorType, counter nvml.EccCounterType) (uint64, nvml.Return) {
		switch {
		case counter != nvml.VOLATILE_ECC:
			return 0, nvml.ERROR_INVALID_ARGUMENT
		case kind == nvml.MEMORY_ERROR_TYPE_UNCORRECTED:
			return uncorrected, nvml.SUCCESS
		default:
			return 5, nvml.SUCCESS
		}
	}
}

// lose makes a GPU of a mock fall off the bus. As nvml.h has it, the search by UUID may then fail for every GPU.
func lose(s *server.Server, index int) (back func()) {
	byIndex, byUUID := s.DeviceGetHandleByIndexFunc, s.DeviceGetHandleByUUIDFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == index {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return byIndex(i)
	}
	s.DeviceGetHandleByUUIDFunc = func(string) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_GPU_IS_LOST }
	return func() { s.DeviceGetHandleByIndexFunc, s.DeviceGetHandleByUUIDFunc = byIndex, byUUID }
}

func mustOpen(t *testing.T, s *server.Server) *Library {
	t.Helper()
	l, err := open(s)
	must.OK(t, err)
	return l
}

func mustList(t *testing.T, l *Library) []Device {
	t.Helper()
	list, err := l.Devices()
	must.OK(t, err)
	return list
}

func TestUncorrectedErrorsSinceFirstSight(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[3].(*server.Device)
	d.GetTotalEccErrorsFunc = ecc(7)
	l := mustOpen(t, s)
	mustList(t, l)
	if h := l.Health(d.UUID); !h.OK() {
		t.Errorf("errors from before the first look: %+v", h)
	}
	// To list a device is to look at it.
	other := s.Devices[5].(*server.Device)
	other.GetTotalEccErrorsFunc = ecc(1)
	if h := l.Health(other.UUID); h.Reason != ECCUncorrected {
		t.Errorf("error between the list and the first question: %+v", h)
	}
	d.GetTotalEccErrorsFunc = ecc(8)
	mustList(t, l) // must not take the new count for the first sight
	for range 2 {
		if h := l.Health(d.UUID); h.Reason != ECCUncorrected || !strings.Contains(h.Message, "8 ") || !strings.Contains(h.Message, "7 when") {
			t.Errorf("one more: %+v", h)
		}
	}
	if h := l.Health(s.Devices[4].(*server.Device).UUID); !h.OK() {
		t.Errorf("another device: %+v", h)
	}
	d.GetTotalEccErrorsFunc = ecc(0)
	if h := l.Health(d.UUID); !h.OK() {
		t.Errorf("after the reset: %+v", h)
	}
	d.GetTotalEccErrorsFunc = ecc(3)
	if h := l.Health(d.UUID); h.Reason != ECCUncorrected {
		t.Errorf("errors after the reset, fewer than before it: %+v", h)
	}
}

func TestMemoryWithoutECC(t *testing.T) {
	for name, answer := range map[string]func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return){
		"not supported": func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 9, nvml.ERROR_NOT_SUPPORTED
		},
		"not told": func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return math.MaxUint64, nvml.SUCCESS
		},
	} {
		s := newServer(wiring{})
		d := s.Devices[0].(*server.Device)
		l := mustOpen(t, s)
		mustList(t, l)
		d.GetTotalEccErrorsFunc = answer
		if h := l.Health(d.UUID); !h.OK() {
			t.Errorf("%s: %+v", name, h)
		}
		if got, err := l.Sample(d.UUID); err != nil || got.ECCUncorrected != 0 {
			t.Errorf("%s: %d errors (%v)", name, got.ECCUncorrected, err)
		}
	}
}

func TestRowThatCouldNotBeRemapped(t *testing.T) {
	s := newServer(wiring{}) // a remapping that is pending is no sickness
	d := s.Devices[0].(*server.Device)
	l := mustOpen(t, s)
	if h := l.Health(d.UUID); !h.OK() {
		t.Errorf("remapping pending: %+v", h)
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 8, false, true, nvml.SUCCESS }
	if h := l.Health(d.UUID); h.Reason != RowRemapFailed {
		t.Errorf("remapping failed: %+v", h)
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 8, false, true, nvml.ERROR_NOT_SUPPORTED }
	if h := l.Health(d.UUID); !h.OK() {
		t.Errorf("not supported: %+v", h)
	}
}

func TestHealthOnAnOldDriver(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	d.GetTotalEccErrorsFunc, d.GetRemappedRowsFunc = nil, nil
	s.LookupSymbolFunc = lacks("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows")
	l := mustOpen(t, s)
	mustList(t, l)
	if h := l.Health(d.UUID); !h.OK() {
		t.Errorf("%+v", h)
	}
}

func lacks(symbols ...string) func(string) error {
	return func(name string) error {
		for _, s := range symbols {
			if s == name {
				return errors.New("undefined symbol")
			}
		}
		return nil
	}
}

func TestLostGPUMakesNoOtherUnhealthy(t *testing.T) {
	s := newServer(wiring{})
	l := mustOpen(t, s)
	for _, listed := range []bool{false, true} {
		if listed {
			mustList(t, l)
		}
		back := lose(s, 3)
		for i, d := range s.Devices {
			h := l.Health(d.(*server.Device).UUID)
			if want := i == 3; (h.Reason == Lost) != want || h.OK() == want {
				t.Errorf("device 3 is lost, device %d: %+v", i, h)
			}
		}
		back()
	}
}

func TestDeviceThatCameBackElsewhere(t *testing.T) {
	s := newServer(wiring{})
	l := mustOpen(t, s)
	uuid := func(i int) string { return s.Devices[i].(*server.Device).UUID }
	a, b := uuid(0), uuid(1)
	mustList(t, l)
	s.Devices[0], s.Devices[1] = s.Devices[1], s.Devices[0]
	if h := l.Health(a); !h.OK() {
		t.Errorf("before it is listed again: %+v", h)
	}
	list := mustList(t, l)
	if list[0].UUID != b || list[1].UUID != a || list[0].Index != 0 || list[1].Index != 1 {
		t.Errorf("devices %s %d and %s %d", list[0].UUID, list[0].Index, list[1].UUID, list[1].Index)
	}
	// Both places are lost, one after the other: each device is listed once, where it was last.
	defer lose(s, 1)()
	defer lose(s, 0)()
	list = mustList(t, l)
	if list[0].UUID != b || list[1].UUID != a || list[0].Health.OK() || list[1].Health.OK() {
		t.Errorf("lost devices %+v and %+v", list[0], list[1])
	}
}

// The first device moves to the second place while its old place does not answer: it is listed once.
func TestDeviceIsNeverListedTwice(t *testing.T) {
	s := newServer(wiring{})
	l := mustOpen(t, s)
	first := s.Devices[0].(*server.Device).UUID
	mustList(t, l)
	s.Devices[1] = s.Devices[0]
	defer lose(s, 0)()
	for _, step := range []string{"moved", "lost at its new place"} {
		list, n := mustList(t, l), 0
		for _, d := range list {
			if d.UUID == first {
				n++
			}
		}
		if n != 1 || list[0].UUID != "" {
			t.Errorf("%s: listed %d times, first place %+v", step, n, list[0])
		}
		defer lose(s, 1)()
	}
}

func TestLibraryIsOpenedAgainForALostDevice(t *testing.T) {
	s := newServer(wiring{})
	inits, shutdowns := 0, 0
	s.InitFunc = func() nvml.Return { inits++; return nvml.SUCCESS }
	s.ShutdownFunc = func() nvml.Return { shutdowns++; return nvml.SUCCESS }
	l := mustOpen(t, s)
	whole := mustList(t, l)
	back := lose(s, 3)
	for range 3 {
		mustList(t, l)
	}
	if inits != 1 {
		t.Fatalf("opened %d times within a moment, want once", inits)
	}
	s.InitFunc = func() nvml.Return { inits++; back(); return nvml.SUCCESS }
	l.opened = time.Now().Add(-time.Hour)
	if list := mustList(t, l); !list[3].Health.OK() || list[3].UUID != whole[3].UUID || inits != 2 || shutdowns != 1 {
		t.Errorf("opened %d times, closed %d times, device 3: %+v", inits, shutdowns, list[3].Health)
	}
	if l.patience != 2*reopenEvery {
		t.Errorf("next time after %s", l.patience)
	}
	if mustList(t, l); l.patience != reopenEvery {
		t.Errorf("all are back, next time after %s", l.patience)
	}
}

// While the driver does not come back no call may reach the library; when it does, everything goes on.
func TestDriverThatGoesAwayAndComesBack(t *testing.T) {
	s := newServer(wiring{})
	l := mustOpen(t, s)
	mustList(t, l)
	uuid := s.Devices[0].(*server.Device).UUID
	count := s.DeviceGetCountFunc
	s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	s.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	l.opened = time.Now().Add(-time.Hour)
	if _, err := l.Devices(); err == nil {
		t.Error("Devices succeeded without a driver")
	}
	s.DeviceGetCountFunc, s.DeviceGetHandleByIndexFunc, s.DeviceGetHandleByUUIDFunc = nil, nil, nil
	if h := l.Health(uuid); h.Reason != NotAnswering {
		t.Errorf("health %+v", h)
	}
	if _, err := l.Sample(uuid); err == nil {
		t.Error("Sample succeeded without a driver")
	}
	if _, ok := l.Recovery(uuid); ok {
		t.Error("Recovery without a driver")
	}
	if err := l.Watch(t.Context(), nil); err == nil {
		t.Error("Watch succeeded without a driver")
	}
	if _, err := l.ComputeMode(uuid); err == nil {
		t.Error("ComputeMode succeeded without a driver")
	}
	s.DeviceGetCountFunc = count
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) { return s.Devices[i], nvml.SUCCESS }
	s.InitFunc = func() nvml.Return { return nvml.SUCCESS }
	l.opened = time.Now().Add(-time.Hour)
	if _, err := l.Devices(); err == nil { // this call finds it closed, opens it and lists
		if h := l.Health(uuid); !h.OK() {
			t.Errorf("health %+v", h)
		}
	} else {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	s.ShutdownFunc = nil
	if err := l.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := l.Devices(); err == nil {
		t.Error("Devices succeeded after Close")
	}
}

// A driver that hangs for one device must not take the others with it.
func TestCallThatDoesNotComeBack(t *testing.T) {
	s := newServer(wiring{})
	l := mustOpen(t, s)
	mustList(t, l)
	hang := make(chan struct{})
	defer close(hang)
	entered := make(chan struct{})
	s.Devices[3].(*server.Device).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		close(entered)
		<-hang
		return nvml.Memory{}, nvml.ERROR_UNKNOWN
	}
	go l.Health(s.Devices[3].(*server.Device).UUID)
	<-entered
	defer lose(s, 5)()
	l.opened = time.Now().Add(-time.Hour)
	mustList(t, l) // wants to open the library again and cannot
	if h := l.Health(s.Devices[0].(*server.Device).UUID); !h.OK() {
		t.Errorf("another device: %+v", h)
	}
	if err := l.Close(); err == nil {
		t.Error("closed a library in use")
	}
}
