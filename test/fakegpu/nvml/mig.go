package main

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// migIndex tells which MIG device a handle means: device · FAKE_INSTANCES + instance.
func migIndex(handle unsafe.Pointer) (int, bool) {
	i := int(C.fake_instance_index(handle))
	return i, i >= 0
}

//export nvmlDeviceGetMigMode
func nvmlDeviceGetMigMode(device unsafe.Pointer, current, pending *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		if d.Major < 8 {
			return errNotSupported
		}
		mode := C.u32(0)
		if d.MIG.Enabled {
			mode = 1
		}
		if code := set(current, mode); code != success {
			return code
		}
		return set(pending, mode)
	})
}

//export nvmlDeviceGetMaxMigDeviceCount
func nvmlDeviceGetMaxMigDeviceCount(device unsafe.Pointer, count *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		if d.Major < 8 {
			return set(count, 0)
		}
		return set(count, 7)
	})
}

//export nvmlDeviceGetMigDeviceHandleByIndex
func nvmlDeviceGetMigDeviceHandleByIndex(device unsafe.Pointer, index C.u32, out *unsafe.Pointer) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, i int) C.int {
		switch {
		case index >= 7:
			return errInvalidArgument
		case !d.MIG.Enabled || int(index) >= len(d.MIG.Instances):
			return errNotFound
		}
		return set(out, C.fake_instance(C.int(i*C.FAKE_INSTANCES)+C.int(index)))
	})
}

//export nvmlDeviceIsMigDeviceHandle
func nvmlDeviceIsMigDeviceHandle(device unsafe.Pointer, is *C.u32) C.int {
	return withState(func(*fakegpu.State) C.int {
		if _, ok := migIndex(device); ok {
			return set(is, 1)
		}
		return set(is, 0)
	})
}

//export nvmlDeviceGetDeviceHandleFromMigDeviceHandle
func nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig unsafe.Pointer, device *unsafe.Pointer) C.int {
	return withState(func(*fakegpu.State) C.int {
		i, ok := migIndex(mig)
		if !ok {
			return errInvalidArgument
		}
		return set(device, deviceHandle(i/C.FAKE_INSTANCES))
	})
}
