// Command nvml is a libnvidia-ml.so.1 for machines without a GPU. Build it with
//
//	go build -buildmode=c-shared -o libnvidia-ml.so.1 ./test/fakegpu/nvml
//
// The library exports, under their versioned and plain names, the NVML calls of go-nvml that Tandem and NVIDIA's
// libraries for CDI make. The answers come from the state file and from what the fake MPS daemons say of their clients
// (see package fakegpu). The other calls of go-nvml v0.13.4 answer NOT_SUPPORTED. A missing or broken file, a strange
// handle or a null pointer is an NVML error code, never a crash.
//
// Read in nvml.h: signatures, structures, codes, which call is for MIG device handles. Read in NVIDIA's MPS
// documentation: NVML's compute list shows the MPS server. Assumptions are that the server's memory there is the sum of
// its clients', and that utilisation is a plain sum, cut at 100 and then shared in proportion. So are the slowdown of
// tenants by each other (fakegpu.Interference), and the numbers of MIG profiles other than the A100's. There was no
// comparison with a real driver.
//
// A process of Go can load it: two Go runtimes then live side by side. The library stays in the process (-z nodelete),
// so its state outlives nvmlShutdown.
package main

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

func main() {}

// NVML's return codes.
const (
	success              C.int = 0
	errUninitialized     C.int = 1
	errInvalidArgument   C.int = 2
	errNotSupported      C.int = 3
	errNotFound          C.int = 6
	errInsufficientSize  C.int = 7
	errDriverNotLoaded   C.int = 9
	errTimeout           C.int = 10
	errGPUIsLost         C.int = 15
	errVersionMismatch   C.int = 25
	errUnknown           C.int = 999
	notAvailableInstance       = 0xFFFFFFFF
)

// driver is what a process sees of the pretended driver.
type driver struct {
	mu    sync.Mutex
	inits int
	file  *fakegpu.Reader
	// slots holds the UUID behind each handle. A handle stays with its device wherever that device moves.
	slots  []string
	slotOf map[string]int
}

var theDriver = driver{file: &fakegpu.Reader{}, slotOf: map[string]int{}}

// initialize counts one more user. Like the real library it fails when there is no driver.
func (d *driver) initialize() C.int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inits == 0 {
		// The C environment: a Go runtime inside of a library does not see what its host set later.
		d.file = &fakegpu.Reader{Path: C.GoString(C.getenv(stateVariable))}
	}
	if d.file.State() == nil {
		return errDriverNotLoaded
	}
	d.inits++
	return success
}

var stateVariable = C.CString(fakegpu.StateVariable)

func (d *driver) shutdown() C.int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inits == 0 {
		return errUninitialized
	}
	d.inits--
	return success
}

// current returns the state as the file is now.
func (d *driver) current() (*fakegpu.State, C.int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inits == 0 {
		return nil, errUninitialized
	}
	s := d.file.State()
	if s == nil {
		return nil, errUnknown
	}
	return s, success
}

// path returns the state file.
func (d *driver) path() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.file.Path
}

// slot returns the number of the handles that belong to a UUID.
func (d *driver) slot(uuid string) C.int {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, ok := d.slotOf[uuid]
	if !ok {
		i = len(d.slots)
		if i == C.FAKE_HANDLES {
			panic("no handle is left")
		}
		d.slots = append(d.slots, uuid)
		d.slotOf[uuid] = i
	}
	return C.int(i)
}

// uuid is the reverse of slot. The UUID is empty for an unused slot.
func (d *driver) uuid(slot C.int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slot < 0 || int(slot) >= len(d.slots) {
		return ""
	}
	return d.slots[slot]
}

func deviceHandle(uuid string) unsafe.Pointer { return C.fake_device(theDriver.slot(uuid)) }

// withState runs fn on the current state. All calls of the library go through it: a mistake in fn ends in an error
// code, not in the end of the host process.
func withState(fn func(*fakegpu.State) C.int) (code C.int) {
	defer func() {
		if recover() != nil {
			code = errUnknown
		}
	}()
	s, code := theDriver.current()
	if code != success {
		return code
	}
	return fn(s)
}

// target is what a device handle means: a GPU, or an instance of it.
type target struct {
	state    *fakegpu.State
	device   *fakegpu.Device
	instance *fakegpu.MIGInstance
}

func (t target) uuid() string {
	if t.instance != nil {
		return t.instance.UUID
	}
	return t.device.UUID
}

// index of the GPU, or of the instance on it.
func (t target) index() int {
	if t.instance != nil {
		return slices.IndexFunc(t.device.MIG.Instances, func(i fakegpu.MIGInstance) bool { return i.UUID == t.instance.UUID })
	}
	return slices.IndexFunc(t.state.Devices, func(d fakegpu.Device) bool { return d.UUID == t.device.UUID })
}

// withTarget runs fn on the GPU or instance behind a handle; a lost one is an error. A device without an entry in the
// state file is lost.
func withTarget(handle unsafe.Pointer, fn func(target) C.int) C.int {
	return withSlot(C.fake_device_slot(handle), fn)
}

func withSlot(slot C.int, fn func(target) C.int) C.int {
	return withState(func(s *fakegpu.State) C.int {
		uuid := theDriver.uuid(slot)
		if uuid == "" {
			return errInvalidArgument
		}
		d, instance := s.Find(uuid)
		if d == nil || d.Lost || instance != nil && !d.MIG.Enabled {
			return errGPUIsLost
		}
		return fn(target{s, d, instance})
	})
}

// withDevice runs fn on the GPU behind a handle. Most calls are not for instances.
func withDevice(handle unsafe.Pointer, fn func(*fakegpu.State, *fakegpu.Device) C.int) C.int {
	return withTarget(handle, func(t target) C.int {
		if t.instance != nil {
			return errNotSupported
		}
		return fn(t.state, t.device)
	})
}

// withInstance runs fn on the instance behind a MIG device handle.
func withInstance(handle unsafe.Pointer, fn func(target) C.int) C.int {
	return withTarget(handle, func(t target) C.int {
		if t.instance == nil {
			return errInvalidArgument
		}
		return fn(t)
	})
}

// put writes a string with its end into a buffer of the caller.
func put(buffer *C.char, size C.u32, s string) C.int {
	if buffer == nil {
		return errInvalidArgument
	}
	if int(size) < len(s)+1 {
		return errInsufficientSize
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(buffer)), len(s)+1)
	copy(out, s)
	out[len(s)] = 0
	return success
}

// set writes a value into memory of the caller.
func set[T any](out *T, value T) C.int {
	if out == nil {
		return errInvalidArgument
	}
	*out = value
	return success
}
