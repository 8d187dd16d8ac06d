package nvml

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Reason is a CamelCase word for what is wrong with a device.
type Reason string

// Reasons.
const (
	None Reason = ""
	// Lost: it has fallen off the bus.
	Lost Reason = "GPULost"
	// ResetRequired: the driver refuses work until it is reset.
	ResetRequired Reason = "ResetRequired"
	// NotAnswering: NVML gave another error.
	NotAnswering Reason = "NVMLError"
	// CriticalXID: the driver logged an error that is not the fault of a program.
	CriticalXID Reason = "CriticalXID"
	// ECCUncorrected: its memory had an uncorrectable error.
	ECCUncorrected Reason = "ECCUncorrected"
	// RowRemapFailed: the GPU has no spare row left for a broken row of its memory.
	RowRemapFailed Reason = "RowRemapFailed"
)

// Health says whether a device answers.
type Health struct {
	// Reason is None for a healthy device.
	Reason Reason
	// Message describes the finding, for people; empty for a healthy device.
	Message string
}

// OK says that nothing is wrong.
func (h Health) OK() bool { return h.Reason == None }

// Health checks whether one device answers and whether its memory works. A device that is unknown to NVML counts as
// lost. A MIG instance is as unhealthy as its GPU. Slow clocks are no reason: Sample reports them.
func (l *Library) Health(uuid string) Health {
	if err := l.enter(); err != nil {
		return Health{Reason: NotAnswering, Message: err.Error()}
	}
	defer l.leave()
	t, ret := l.find(uuid)
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT:
		return Health{Reason: Lost, Message: "the driver has no device " + uuid}
	default:
		return unhealthy("handle", ret)
	}
	if _, ret := t.device.GetMemoryInfo(); ret != nvml.SUCCESS {
		return unhealthy("memory", ret)
	}
	return l.memoryHealth(t)
}

// memoryHealth looks for errors of the memory. A row that waits for its remapping is none: the driver keeps programs
// off it until the reset that remaps it (nvml.h).
func (l *Library) memoryHealth(t target) Health {
	count, ok := l.uncorrectedErrors(t.gpu)
	if least := l.least(t.parent, count, ok); ok && count > least {
		return Health{Reason: ECCUncorrected, Message: fmt.Sprintf(
			"%d uncorrected memory errors since the last reset, %d when the agent first looked: reset the GPU", count, least)}
	}
	if l.has("nvmlDeviceGetRemappedRows") {
		if _, _, _, failed, ret := t.gpu.GetRemappedRows(); ret == nvml.SUCCESS && failed {
			return Health{Reason: RowRemapFailed, Message: "a broken row of the memory has no spare: replace the GPU"}
		}
	}
	return Health{}
}

// baseline records the first count of memory errors that it sees of a GPU.
//
// These errors do not count: the number stands until the next reset or load of the driver, it may be months old, and
// the programs that met the errors are gone. A GPU with a history would otherwise never serve. Every further error
// makes the device unhealthy until its reset, as NVIDIA's DCGM recommends. After a reset the count is lower, and the
// lower count is the new baseline. If an agent starts after the error, only the driver's own report shows it
// (Recovery).
func (l *Library) baseline(uuid string, h nvml.Device) {
	count, ok := l.uncorrectedErrors(h)
	l.least(uuid, count, ok)
}

// least returns the least known count of a GPU so far, this one included if it is known.
func (l *Library) least(uuid string, count uint64, ok bool) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	least, seen := l.uncorrected[uuid]
	if ok && (!seen || count < least) {
		l.uncorrected[uuid], least = count, count
	}
	return least
}

// uncorrectedErrors is false for GPUs without ECC, and with ECC off.
func (l *Library) uncorrectedErrors(h nvml.Device) (uint64, bool) {
	return l.eccErrors(h, nvml.MEMORY_ERROR_TYPE_UNCORRECTED)
}

func (l *Library) eccErrors(h nvml.Device, kind nvml.MemoryErrorType) (uint64, bool) {
	if !l.has("nvmlDeviceGetTotalEccErrors") {
		return 0, false
	}
	count, ret := h.GetTotalEccErrors(kind, nvml.VOLATILE_ECC)
	return count, ret == nvml.SUCCESS && count != math.MaxUint64
}
