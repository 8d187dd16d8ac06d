package nvml

import (
	"math"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"
)

func mustSample(t *testing.T, l *Library, uuid string) Sample {
	t.Helper()
	s, err := l.Sample(uuid)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSample(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[2].(*server.Device)
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 40 << 30, Reserved: 620 << 20, Used: 3 << 30}, nvml.SUCCESS
	}
	d.GetTotalEccErrorsFunc = ecc(2)
	// Idle, power cap, hardware slowdown by heat, clocks set for the display.
	d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return 0x1 | 0x4 | 0x8 | 0x40 | 0x100, nvml.SUCCESS }
	want := Sample{
		MemoryUsed: 3 << 30, SM: 0.8, MemoryBandwidth: 0.25, Temperature: 41, Power: 97.5,
		Throttle: []string{"sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"}, ECCUncorrected: 2, ECCCorrected: 5, Processes: []Process{},
	}
	if diff := cmp.Diff(want, mustSample(t, mustOpen(t, s), d.UUID)); diff != "" {
		t.Error(diff)
	}
}

func TestThrottleNamesAreBounded(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return math.MaxUint64 - 1, nvml.SUCCESS }
	l := mustOpen(t, s)
	if got := mustSample(t, l, d.UUID).Throttle; !slices.Equal(got, ThrottleReasons()) {
		t.Errorf("all bits are %v, want %v", got, ThrottleReasons())
	}
	d.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return math.MaxUint64, nvml.SUCCESS }
	if got := mustSample(t, l, d.UUID).Throttle; got != nil {
		t.Errorf("not told is %v", got)
	}
	// The older name of the call.
	d.GetCurrentClocksEventReasonsFunc = nil
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0x80, nvml.SUCCESS }
	s.LookupSymbolFunc = lacks("nvmlDeviceGetCurrentClocksEventReasons")
	if got := mustSample(t, l, d.UUID).Throttle; !slices.Equal(got, []string{"hw_power_brake_slowdown"}) {
		t.Errorf("by the older name: %v", got)
	}
}

func TestUnreportedValues(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	used := uint64(none64)
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 40 << 30, Reserved: 620 << 20, Used: used}, nvml.SUCCESS
	}
	d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{Gpu: none32, Memory: 101}, nvml.SUCCESS
	}
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return none32, nvml.SUCCESS }
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return none32, nvml.SUCCESS }
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return none64, nvml.SUCCESS }
	l := mustOpen(t, s)
	for _, used = range []uint64{none64, 1 << 50} {
		if diff := cmp.Diff(Sample{Processes: []Process{}}, mustSample(t, l, d.UUID)); diff != "" {
			t.Errorf("%d bytes in use: %s", used, diff)
		}
	}
}

func TestSampleOnAnOldDriver(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	d.MemoryInfo.Used = 2 << 30
	d.GetMemoryInfo_v2Func, d.GetTotalEccErrorsFunc, d.GetCurrentClocksEventReasonsFunc = nil, nil, nil
	d.GetTemperatureFunc, d.GetPowerUsageFunc = nil, nil
	d.GetComputeRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc, d.GetProcessUtilizationFunc = nil, nil, nil
	s.LookupSymbolFunc = func(name string) error { return nvml.ERROR_FUNCTION_NOT_FOUND }
	want := Sample{MemoryUsed: 2 << 30, SM: 0.8, MemoryBandwidth: 0.25, Processes: []Process{}}
	if diff := cmp.Diff(want, mustSample(t, mustOpen(t, s), d.UUID)); diff != "" {
		t.Error(diff)
	}
}

func TestSampleOfALostDeviceFails(t *testing.T) {
	s := newServer(wiring{})
	l := mustOpen(t, s)
	mustList(t, l)
	defer lose(s, 1)()
	if _, err := l.Sample(s.Devices[1].(*server.Device).UUID); err == nil {
		t.Error("sampled a lost device")
	}
	mustSample(t, l, s.Devices[0].(*server.Device).UUID)
	d := s.Devices[2].(*server.Device)
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_GPU_IS_LOST }
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	if _, err := l.Sample(d.UUID); err == nil {
		t.Error("sampled a device that is lost between two calls")
	}
}

func TestComputeMode(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	number, ret := nvml.COMPUTEMODE_DEFAULT, nvml.SUCCESS
	d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) { return number, ret }
	d.SetComputeModeFunc = func(m nvml.ComputeMode) nvml.Return { number = m; return ret }
	l := mustOpen(t, s)
	for _, mode := range []Mode{ModeExclusiveProcess, ModeDefault} {
		if err := l.SetComputeMode(d.UUID, mode); err != nil {
			t.Error(err)
		}
		if got, err := l.ComputeMode(d.UUID); got != mode || err != nil {
			t.Errorf("%s (%v), want %s", got, err, mode)
		}
	}
	for _, number = range []nvml.ComputeMode{nvml.COMPUTEMODE_PROHIBITED, nvml.COMPUTEMODE_EXCLUSIVE_THREAD, 77} {
		before := number
		if got, err := l.ComputeMode(d.UUID); got != ModeOther || err != nil {
			t.Errorf("%d is %s (%v)", number, got, err)
		}
		for _, wrong := range []Mode{ModeOther, "", "exclusive"} {
			if err := l.SetComputeMode(d.UUID, wrong); err == nil || number != before {
				t.Errorf("set to %q: %v", wrong, err)
			}
		}
	}
	ret = nvml.ERROR_NO_PERMISSION
	if err := l.SetComputeMode(d.UUID, ModeDefault); err == nil {
		t.Error("set without permission")
	}
	if _, err := l.ComputeMode(d.UUID); err == nil {
		t.Error("read without permission")
	}
	if _, err := l.ComputeMode("GPU-nobody"); err == nil {
		t.Error("read of nobody")
	}
	if err := l.SetComputeMode("GPU-nobody", ModeDefault); err == nil {
		t.Error("set of nobody")
	}
}

func TestRecovery(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	var value [8]byte
	inner, outer := nvml.SUCCESS, nvml.SUCCESS
	d.GetFieldValuesFunc = func(f []nvml.FieldValue) nvml.Return {
		if len(f) != 1 || f[0].FieldId != 230 {
			t.Errorf("asked for %+v", f)
		}
		f[0].Value, f[0].NvmlReturn = value, uint32(inner)
		return outer
	}
	l := mustOpen(t, s)
	for number, want := range map[byte]Action{
		0: RecoveryNone, 1: RecoveryReset, 2: RecoveryReboot, 3: RecoveryDrain, 4: RecoveryDrainAndReset,
		5: RecoveryIMEX, 6: RecoveryBusReset, 7: RecoveryReboot, 200: RecoveryOther,
	} {
		value[0] = number
		if got, ok := l.Recovery(d.UUID); got != want || !ok {
			t.Errorf("%d is %s (%t), want %s", number, got, ok, want)
		}
	}
	value[0] = 0
	for _, fail := range []*nvml.Return{&inner, &outer} {
		*fail = nvml.ERROR_NOT_SUPPORTED
		if got, ok := l.Recovery(d.UUID); ok || got == RecoveryNone {
			t.Errorf("not told is %s (%t)", got, ok)
		}
		*fail = nvml.SUCCESS
	}
	s.LookupSymbolFunc = lacks("nvmlDeviceGetFieldValues")
	d.GetFieldValuesFunc = nil
	if got, ok := l.Recovery(d.UUID); ok || got == RecoveryNone {
		t.Errorf("on an old driver: %s (%t)", got, ok)
	}
}
