package nvml

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// The tests of this file go by the real go-nvml through the binary interface of the stand-in library.

// serve writes down what the MPS daemon of a device would tell the stand-in. The server's PID is that of the test.
func serve(t *testing.T, path, uuid string, clients ...fakegpu.ClientUsage) {
	t.Helper()
	u := fakegpu.Usage{Server: fakegpu.ServerUsage{PID: os.Getpid()}, Clients: clients}
	must.OK(t, u.Write(fakegpu.UsagePath(path, uuid)))
}

func TestSampleOverTheABI(t *testing.T) {
	l, s, path := openFake(t, "A100", 2)
	uuid := s.Devices[1].UUID
	mustList(t, l)
	serve(t, path, uuid, fakegpu.ClientUsage{PID: 1001, Memory: 3 << 30, SM: 40, Bandwidth: 10}, fakegpu.ClientUsage{PID: 1002, Memory: 1 << 30})
	update(t, path, func(s *fakegpu.State) {
		d := &s.Devices[1]
		d.Temperature, d.PowerMilliwatts, d.ThrottleReasons = 63, 250_500, 0x1|0x20
		d.CorrectedECC, d.UncorrectedECC = 9, 2
	})
	want := Sample{
		MemoryUsed: 4<<30 + fakegpu.ServerMemory, SM: 0.4, MemoryBandwidth: 0.1, Temperature: 63, Power: 250.5, Throttle: []string{"sw_thermal_slowdown"},
		ECCCorrected: 9, ECCUncorrected: 2,
		Processes: []Process{
			{PID: 1001, Memory: 3 << 30}, {PID: 1002, Memory: 1 << 30},
			{PID: os.Getpid(), Memory: fakegpu.ServerMemory, SM: 0.4, MemoryBandwidth: 0.1, Measured: true, Server: true},
		},
	}
	byPID := cmpopts.SortSlices(func(a, b Process) bool { return a.PID < b.PID })
	for range 3 {
		if diff := cmp.Diff(want, mustSample(t, l, uuid), byPID, approximately()); diff != "" {
			t.Error(diff)
		}
	}
	// The other device does nothing.
	if diff := cmp.Diff(Sample{Processes: []Process{}}, mustSample(t, l, s.Devices[0].UUID)); diff != "" {
		t.Error(diff)
	}
	// Drivers that tell what each client does.
	update(t, path, func(s *fakegpu.State) { s.ClientSamples = true })
	want.Processes[0].SM, want.Processes[0].MemoryBandwidth, want.Processes[0].Measured = 0.4, 0.1, true
	want.Processes[2].SM, want.Processes[2].MemoryBandwidth, want.Processes[2].Measured = 0, 0, false
	if diff := cmp.Diff(want, mustSample(t, l, uuid), byPID, approximately()); diff != "" {
		t.Error("each client:", diff)
	}
	update(t, path, func(s *fakegpu.State) { s.Devices[1].Lost = true })
	if _, err := l.Sample(uuid); err == nil {
		t.Error("sampled a lost device")
	}
}

func TestMoreProcessesThanTheBufferHolds(t *testing.T) {
	l, s, path := openFake(t, "T4", 1)
	update(t, path, func(s *fakegpu.State) { s.ClientSamples = true }) // else the server stands for all of them
	const many = 60
	clients := make([]fakegpu.ClientUsage, 0, many)
	for i := range many {
		clients = append(clients, fakegpu.ClientUsage{PID: 2_000_000 + i, Memory: 1 << 20, SM: 1})
	}
	serve(t, path, s.Devices[0].UUID, clients...)
	measured := 0
	for _, p := range mustSample(t, l, s.Devices[0].UUID).Processes {
		if p.Measured {
			measured++
		}
	}
	if measured != many {
		t.Errorf("%d processes with a sample, want %d", measured, many)
	}
}

func TestMIGOverTheABI(t *testing.T) {
	l, s, path := openFake(t, "A100", 2)
	update(t, path, func(s *fakegpu.State) {
		s.Devices[0].MIG = fakegpu.MIG{Enabled: true, Instances: []fakegpu.MIGInstance{
			{UUID: "MIG-b", Profile: "1g.5gb", Memory: 4864 << 20, GI: 9}, {UUID: "MIG-a", Profile: "3g.20gb", Memory: 19968 << 20, GI: 2},
		}}
		s.Devices[0].Temperature = 50
	})
	list := mustList(t, l)
	gpu, parent := s.Devices[1].UUID, s.Devices[0].UUID
	instance := func(uuid, profile string, index, gi int) Device {
		return Device{
			UUID: uuid, Index: index, Minor: 0, Model: "NVIDIA-A100-SXM4-40GB-MIG-" + profile, Capability: Capability{8, 0},
			PCIBusID: "00000000:07:00.0", NUMANode: list[0].NUMANode, Parent: parent, Profile: profile, GI: gi,
		}
	}
	want := []Device{instance("MIG-a", "3g.20gb", 2, 2), instance("MIG-b", "1g.5gb", 3, 9)}
	if len(list) != 3 || list[0].UUID != gpu || len(list[0].Links) != 0 {
		t.Fatalf("%+v, want the whole GPU first, without links", list)
	}
	if diff := cmp.Diff(want, list[1:], cmpopts.IgnoreFields(Device{}, "Memory")); diff != "" {
		t.Error(diff)
	}
	for i, least := range []int64{18 << 30, 4 << 30} {
		if m := int64(list[1+i].Memory); m < least || m > least*5/4 {
			t.Errorf("%s has %d bytes", list[1+i].UUID, m)
		}
	}
	serve(t, path, "MIG-a", fakegpu.ClientUsage{PID: 1001, Memory: 3 << 30, SM: 40})
	got := mustSample(t, l, "MIG-a")
	if got.MemoryUsed != 3<<30+fakegpu.ServerMemory || got.Temperature != 50 || len(got.Processes) != 2 {
		t.Errorf("sample of an instance: %+v", got)
	}
	if got := mustSample(t, l, "MIG-b"); got.MemoryUsed != 0 || len(got.Processes) != 0 {
		t.Errorf("sample of its neighbour: %+v", got)
	}
	update(t, path, func(s *fakegpu.State) { s.Devices[0].UncorrectedECC++ })
	if h := l.Health("MIG-b"); h.Reason != ECCUncorrected {
		t.Errorf("health of an instance of a GPU with a memory error: %+v", h)
	}
	update(t, path, func(s *fakegpu.State) { s.Devices[0].MIG = fakegpu.MIG{} })
	if h := l.Health("MIG-b"); h.Reason != Lost {
		t.Errorf("health of an instance that is no more: %+v", h)
	}
	if list := mustList(t, l); len(list) != 2 || list[0].UUID != parent || len(list[0].Links) != 1 {
		t.Errorf("MIG turned off: %+v", list)
	}
}

func TestMemoryErrorsOverTheABI(t *testing.T) {
	l, s, path := openFake(t, "A100", 2)
	mustList(t, l)
	uuid := s.Devices[0].UUID
	for _, step := range []struct {
		change func(*fakegpu.Device)
		want   Reason
	}{
		{func(d *fakegpu.Device) { d.CorrectedECC = 100 }, None},
		{func(d *fakegpu.Device) { d.RowRemapPending = true }, None},
		{func(d *fakegpu.Device) { d.ThrottleReasons = 0x7ff }, None},
		{func(d *fakegpu.Device) { d.UncorrectedECC = 1 }, ECCUncorrected},
		{func(d *fakegpu.Device) { d.UncorrectedECC = 0 }, None},
		{func(d *fakegpu.Device) { d.RowRemapFailure = true }, RowRemapFailed},
		{func(d *fakegpu.Device) { d.RowRemapFailure = false }, None},
	} {
		update(t, path, func(s *fakegpu.State) { step.change(&s.Devices[0]) })
		if h := l.Health(uuid); h.Reason != step.want {
			t.Errorf("%+v, want %q", h, step.want)
		}
		if h := l.Health(s.Devices[1].UUID); !h.OK() {
			t.Errorf("the other device: %+v", h)
		}
	}
}

func TestModeAndRecoveryOverTheABI(t *testing.T) {
	l, s, path := openFake(t, "A100", 1)
	uuid := s.Devices[0].UUID
	must.OK(t, l.SetComputeMode(uuid, ModeExclusiveProcess))
	if mode, err := l.ComputeMode(uuid); mode != ModeExclusiveProcess || err != nil {
		t.Errorf("mode %s (%v)", mode, err)
	}
	if action, ok := l.Recovery(uuid); action != RecoveryNone || !ok {
		t.Errorf("recovery %s (%t)", action, ok)
	}
	update(t, path, func(s *fakegpu.State) { s.Devices[0].RecoveryAction = 4 })
	if action, ok := l.Recovery(uuid); action != RecoveryDrainAndReset || !ok {
		t.Errorf("recovery %s (%t)", action, ok)
	}
	update(t, path, func(s *fakegpu.State) { s.Devices[0].NoRecoveryAction = true })
	if action, ok := l.Recovery(uuid); action == RecoveryNone || ok {
		t.Errorf("a driver that does not tell: %s (%t)", action, ok)
	}
	update(t, path, func(s *fakegpu.State) { s.Devices[0].Lost = true })
	if action, ok := l.Recovery(uuid); action == RecoveryNone || ok {
		t.Errorf("a lost device: %s (%t)", action, ok)
	}
}

// Two devices change their places: everything goes on by UUID.
func TestPlacesChangeOverTheABI(t *testing.T) {
	l, s, path := openFake(t, "A100", 3)
	mustList(t, l)
	one, two := s.Devices[0].UUID, s.Devices[1].UUID
	update(t, path, func(s *fakegpu.State) {
		s.Devices[0], s.Devices[1] = s.Devices[1], s.Devices[0]
		s.Devices[0].Temperature, s.Devices[1].Temperature = 22, 11
	})
	for _, step := range []string{"before", "after"} {
		if a, b := mustSample(t, l, one).Temperature, mustSample(t, l, two).Temperature; a != 11 || b != 22 {
			t.Errorf("%s they are listed: %d and %d degrees, want 11 and 22", step, a, b)
		}
		mustList(t, l)
	}
	if list := mustList(t, l); list[0].UUID != two || list[0].Minor != 1 || list[1].UUID != one || list[1].Minor != 0 {
		t.Errorf("%+v", list)
	}
}

// The library is closed and opened again under a Watch; all later calls work with new handles.
func TestOpeningAgainOverTheABI(t *testing.T) {
	l, s, path := openFake(t, "A100", 2)
	mustList(t, l)
	update(t, path, func(s *fakegpu.State) { s.Devices[1].Lost = true })
	for range 3 {
		done := make(chan error, 1)
		go func() { done <- l.Watch(t.Context(), func(Event) {}) }()
		l.mu.Lock()
		l.opened, l.patience = time.Now().Add(-time.Hour), reopenEvery
		l.mu.Unlock()
		list := mustList(t, l)
		if !list[0].Health.OK() || list[1].UUID != s.Devices[1].UUID || list[1].Health.Reason != Lost {
			t.Errorf("%+v", list)
		}
		mustSample(t, l, s.Devices[0].UUID)
		// It may have begun before or after: after, it goes on until the next round.
		select {
		case err := <-done:
			if !errors.Is(err, errReopened) {
				t.Errorf("Watch ended with %v", err)
			}
		default:
		}
	}
	update(t, path, func(s *fakegpu.State) { s.Devices[1].Lost = false })
	if list := mustList(t, l); !list[1].Health.OK() {
		t.Errorf("%+v", list[1])
	}
}
