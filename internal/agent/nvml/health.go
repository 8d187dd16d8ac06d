package nvml

import (
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Reason is a CamelCase word for what is wrong with a device.
type Reason string

// Reasons. None is a device that answers.
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
	// ECCUncorrected: its memory had an error that could not be corrected.
	ECCUncorrected Reason = "ECCUncorrected"
	// RowRemapFailed: a broken row of its memory could not be replaced, since no spare one is left.
	RowRemapFailed Reason = "RowRemapFailed"
)

// Health says whether a device answers.
type Health struct {
	// Reason is None for a healthy device.
	Reason Reason
	// Message says what was seen, for people; empty for a healthy device.
	Message string
}

// OK says that nothing is wrong.
func (h Health) OK() bool { return h.Reason == None }

// Health asks one device whether it answers and whether its memory is sound. A device that NVML does not know has been
// lost. A MIG instance is as sick as its GPU. Slow clocks are no sickness: Sample tells them.
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

// memoryHealth looks for errors of the memory. A row that waits to be remapped is none: the driver keeps programs off
// it until the reset that remaps it (nvml.h).
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

// baseline takes the count of memory errors that a GPU has at first sight.
//
// These are forgiven: the count stands until the next reset or load of the driver, it may be months old, and whoever
// met the errors is gone. A GPU with a history would otherwise never serve. Every further one makes the device sick
// until it is reset, which is what NVIDIA's DCGM asks for too: the count is then below what it was, and the lower count
// is the new measure. Where an agent starts after the error, the driver's own word is left (Recovery).
func (l *Library) baseline(uuid string, h nvml.Device) {
	count, ok := l.uncorrectedErrors(h)
	l.least(uuid, count, ok)
}

// least returns the least count of a GPU so far, this one included if it is known.
func (l *Library) least(uuid string, count uint64, ok bool) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	least, seen := l.uncorrected[uuid]
	if ok && (!seen || count < least) {
		l.uncorrected[uuid], least = count, count
	}
	return least
}

// uncorrectedErrors is false for GPUs without ECC, and where it is turned off.
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
