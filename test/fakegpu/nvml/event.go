package main

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"sync"
	"time"
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

const (
	xidCritical = 8
	// waitStep is how often a waiter looks at the state file. Smaller finds events sooner; at 10 ms the polls alone cost
	// a process most of a percent of a core, where a driver sleeps in the kernel.
	waitStep = 100 * time.Millisecond
)

// eventSet is what a process waits for.
type eventSet struct {
	// devices by UUID.
	devices map[string]bool
	// seen counts the delivered events of the state file, with those of the time before the first registration.
	seen int
}

var (
	setsMu sync.Mutex
	sets   = map[unsafe.Pointer]*eventSet{}
)

//export nvmlDeviceGetSupportedEventTypes
func nvmlDeviceGetSupportedEventTypes(device unsafe.Pointer, types *C.u64) C.int {
	return withDevice(device, func(*fakegpu.State, *fakegpu.Device) C.int { return set(types, xidCritical) })
}

//export nvmlEventSetCreate
func nvmlEventSetCreate(out *unsafe.Pointer) C.int {
	return withState(func(s *fakegpu.State) C.int {
		if out == nil {
			return errInvalidArgument
		}
		setsMu.Lock()
		defer setsMu.Unlock()
		handle := C.malloc(1)
		sets[handle] = &eventSet{devices: map[string]bool{}, seen: len(s.Events)}
		*out = handle
		return success
	})
}

//export nvmlDeviceRegisterEvents
func nvmlDeviceRegisterEvents(device unsafe.Pointer, types C.u64, handle unsafe.Pointer) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if types&^xidCritical != 0 {
			return errNotSupported
		}
		setsMu.Lock()
		defer setsMu.Unlock()
		e := sets[handle]
		if e == nil {
			return errInvalidArgument
		}
		e.devices[d.UUID] = true
		return success
	})
}

//export nvmlEventSetWait
func nvmlEventSetWait(handle unsafe.Pointer, data *C.fake_event, timeout C.u32) C.int {
	deadline := time.Now().Add(time.Duration(timeout) * time.Millisecond)
	for {
		code := withState(func(s *fakegpu.State) C.int { return nextEvent(s, handle, data) })
		if code != errTimeout || !time.Now().Before(deadline) {
			return code
		}
		time.Sleep(min(waitStep, time.Until(deadline)))
	}
}

//export nvmlEventSetWait_v2
func nvmlEventSetWait_v2(handle unsafe.Pointer, data *C.fake_event, timeout C.u32) C.int {
	return nvmlEventSetWait(handle, data, timeout)
}

// nextEvent gives out the oldest event that the set waits for and has not seen.
func nextEvent(s *fakegpu.State, handle unsafe.Pointer, data *C.fake_event) C.int {
	setsMu.Lock()
	defer setsMu.Unlock()
	e := sets[handle]
	if e == nil || data == nil {
		return errInvalidArgument
	}
	for e.seen < len(s.Events) {
		event := s.Events[e.seen]
		e.seen++
		uuid := event.UUID
		if uuid == "" {
			uuid = s.Devices[event.Device].UUID
		}
		if !e.devices[uuid] {
			continue
		}
		return set(data, C.fake_event{
			device: deviceHandle(uuid), _type: xidCritical, data: C.u64(event.XID),
			gpuInstance: notAvailableInstance, computeInstance: notAvailableInstance,
		})
	}
	return errTimeout
}

//export nvmlEventSetFree
func nvmlEventSetFree(handle unsafe.Pointer) C.int {
	return withState(func(*fakegpu.State) C.int {
		setsMu.Lock()
		defer setsMu.Unlock()
		if sets[handle] == nil {
			return errInvalidArgument
		}
		delete(sets, handle)
		C.free(handle)
		return success
	})
}
