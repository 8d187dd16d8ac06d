package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Health asks one device whether it answers. A device that NVML does not know has been lost.
func (l *Library) Health(uuid string) Health {
	h, ret := l.api.DeviceGetHandleByUUID(uuid)
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT:
		return Health{Reason: Lost, Message: "the driver has no device " + uuid}
	default:
		return unhealthy("handle", ret)
	}
	if _, ret := h.GetMemoryInfo(); ret != nvml.SUCCESS {
		return unhealthy("memory", ret)
	}
	return Health{}
}

// Event is an XID error that the driver logged.
type Event struct {
	// UUID of the device.
	UUID string
	XID  uint64
	// Critical errors mean that the device is sick; the others are faults of a program.
	Critical bool
}

// applicationXIDs are raised by programs, and leave the device sound: 13 graphics engine exception, 31 page fault, 43
// stopped processing, 45 preemptive cleanup, 68 video processor exception, 109 context switch timeout. Source: NVIDIA,
// "XID Errors". A number too many here hides a broken GPU; one too few lets a user's bug empty a healthy one.
var applicationXIDs = map[uint64]bool{13: true, 31: true, 43: true, 45: true, 68: true, 109: true}

// watchStepMillis is how long one wait inside of NVML lasts, and so how long Watch takes to notice that its context
// ended.
const watchStepMillis = 500

// Watch reports the XID errors of all devices from now on. It returns nil when the context ends, and an error when
// the driver stops answering. Devices that cannot tell their errors (very old ones) are left out.
func (l *Library) Watch(ctx context.Context, report func(Event)) error {
	set, ret := l.api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("watch errors: create event set: %s", text(ret))
	}
	defer func() { _ = set.Free() }()
	uuids, err := l.register(set)
	if err != nil {
		return fmt.Errorf("watch errors: %w", err)
	}
	for ctx.Err() == nil {
		data, ret := set.Wait(watchStepMillis)
		switch {
		case ret == nvml.ERROR_TIMEOUT:
		case ret != nvml.SUCCESS:
			// Also when one device is gone: waiting again would return at once. Which one it is, Health tells.
			return fmt.Errorf("watch errors: wait: %s", text(ret))
		case data.EventType == nvml.EventTypeXidCriticalError:
			xid := data.EventData
			report(Event{UUID: uuids[data.Device], XID: xid, Critical: !applicationXIDs[xid]})
		}
	}
	return nil
}

// register adds every device that answers to the set. It returns their UUIDs: after "fallen off the bus" (XID 79) a
// device could not tell it any more.
func (l *Library) register(set nvml.EventSet) (map[nvml.Device]string, error) {
	count, ret := l.api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count devices: %s", text(ret))
	}
	uuids := map[nvml.Device]string{}
	for i := range count {
		h, ret := l.api.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		ret = h.RegisterEvents(nvml.EventTypeXidCriticalError, set)
		if ret == nvml.SUCCESS {
			uuids[h], ret = h.GetUUID()
		}
		if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED && ret != nvml.ERROR_GPU_IS_LOST {
			return nil, fmt.Errorf("register device %d: %s", i, text(ret))
		}
	}
	return uuids, nil
}
