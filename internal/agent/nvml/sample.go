package nvml

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Sample is what a device does at one time. Values that the driver does not report are 0.
type Sample struct {
	// MemoryUsed by programs; without the driver's own memory where the driver reports that apart.
	MemoryUsed vgpu.Bytes
	// SM is the part of the driver's last sample period (a sixth of a second to one second) in which a kernel ran: 0 to
	// 1. MemoryBandwidth is the part with reads or writes of memory. The driver reports neither for MIG instances nor
	// for GPUs in MIG mode.
	SM, MemoryBandwidth float64
	// Temperature of the GPU in °C.
	Temperature int
	// Power of the whole board in watts, for a MIG instance too.
	Power float64
	// Throttle names what keeps the clocks low, in the order of ThrottleReasons.
	Throttle []string
	// ECCUncorrected and ECCCorrected count memory errors of the GPU since its last reset.
	ECCUncorrected, ECCCorrected uint64
	// Processes that have a CUDA context on the device, by PID.
	Processes []Process
}

// throttles are NVML's reasons for low clocks, without idleness and without clocks that an administrator set.
var throttles = []struct {
	bit  uint64
	name string
}{
	{0x004, "sw_power_cap"}, {0x008, "hw_slowdown"}, {0x010, "sync_boost"}, {0x020, "sw_thermal_slowdown"},
	{0x040, "hw_thermal_slowdown"}, {0x080, "hw_power_brake_slowdown"}, {0x200, "board_limit"}, {0x400, "reliability"},
}

// ThrottleReasons returns all names that Sample.Throttle may hold, in nvidia-smi's words.
func ThrottleReasons() []string {
	names := make([]string, 0, len(throttles))
	for _, t := range throttles {
		names = append(names, t.name)
	}
	return names
}

// Values beyond these are no measurements but signs for "unknown", of which drivers have several.
const (
	maxPercent    = 100
	maxCelsius    = 300
	maxMilliwatts = 100_000_000
	bytesNotTold  = math.MaxUint64
)

// Sample measures one device. Sample fails when the device does not answer; a single missing value stays 0.
func (l *Library) Sample(uuid string) (Sample, error) {
	if err := l.enter(); err != nil {
		return Sample{}, fmt.Errorf("sample %s: %w", uuid, err)
	}
	defer l.leave()
	t, ret := l.find(uuid)
	if ret != nvml.SUCCESS {
		return Sample{}, fmt.Errorf("sample %s: find it: %s", uuid, text(ret))
	}
	var s Sample
	if s.MemoryUsed, ret = l.memoryUsed(t.device); ret != nvml.SUCCESS {
		return Sample{}, fmt.Errorf("sample %s: read memory: %s", uuid, text(ret))
	}
	s.SM, s.MemoryBandwidth = rates(t.device)
	s.Temperature, s.Power = l.temperature(t.gpu), l.power(t.gpu)
	s.Throttle = l.throttle(t.gpu)
	s.ECCUncorrected = l.ecc(t.gpu, nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
	s.ECCCorrected = l.ecc(t.gpu, nvml.MEMORY_ERROR_TYPE_CORRECTED)
	s.Processes = l.processes(t.device)
	l.measure(t, s.Processes)
	return s, nil
}

// memoryUsed prefers the second form of the call, as readMemory does: the first counts what the driver keeps as used.
func (l *Library) memoryUsed(h nvml.Device) (vgpu.Bytes, nvml.Return) {
	if l.has("nvmlDeviceGetMemoryInfo_v2") {
		if m, ret := h.GetMemoryInfo_v2(); ret == nvml.SUCCESS && m.Total > m.Reserved {
			return usedOf(m.Used, m.Total), ret
		}
	}
	m, ret := h.GetMemoryInfo()
	return usedOf(m.Used, m.Total), ret
}

// usedOf leaves out an amount that a device of this size cannot have.
func usedOf(used, total uint64) vgpu.Bytes {
	if used > total || used > math.MaxInt64 {
		return 0
	}
	return vgpu.Bytes(used)
}

func rates(h nvml.Device) (sm, memory float64) {
	u, ret := h.GetUtilizationRates()
	if ret != nvml.SUCCESS {
		return 0, 0
	}
	return ratio(u.Gpu), ratio(u.Memory)
}

// ratio turns percents into 0 to 1. More than 100 is no measurement: some drivers gave garbage (nvtop #110), and a cut
// to 100 would turn it into full load, the worst of the possible answers.
func ratio(percent uint32) float64 {
	if percent > maxPercent {
		return 0
	}
	return float64(percent) / 100
}

func (l *Library) temperature(h nvml.Device) int {
	if !l.has("nvmlDeviceGetTemperature") {
		return 0
	}
	//nolint:staticcheck // The call that replaces it is not there before CUDA 12.9.
	celsius, ret := h.GetTemperature(nvml.TEMPERATURE_GPU)
	if ret != nvml.SUCCESS || celsius > maxCelsius {
		return 0
	}
	return int(celsius)
}

func (l *Library) power(h nvml.Device) float64 {
	if !l.has("nvmlDeviceGetPowerUsage") {
		return 0
	}
	milliwatts, ret := h.GetPowerUsage()
	if ret != nvml.SUCCESS || milliwatts > maxMilliwatts {
		return 0
	}
	return float64(milliwatts) / 1000
}

// throttle uses the name that the call has had since r535, else the one before.
func (l *Library) throttle(h nvml.Device) []string {
	bits, ret := uint64(0), nvml.ERROR_NOT_SUPPORTED
	switch {
	case l.has("nvmlDeviceGetCurrentClocksEventReasons"):
		bits, ret = h.GetCurrentClocksEventReasons()
	case l.has("nvmlDeviceGetCurrentClocksThrottleReasons"):
		bits, ret = h.GetCurrentClocksThrottleReasons()
	}
	if ret != nvml.SUCCESS || bits == math.MaxUint64 {
		return nil
	}
	var names []string
	for _, t := range throttles {
		if bits&t.bit != 0 {
			names = append(names, t.name)
		}
	}
	return names
}

func (l *Library) ecc(h nvml.Device, kind nvml.MemoryErrorType) uint64 {
	if count, ok := l.eccErrors(h, kind); ok {
		return count
	}
	return 0
}
