package main

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

//export nvmlInit
func nvmlInit() C.int { return theDriver.initialize() }

//export nvmlInit_v2
func nvmlInit_v2() C.int { return theDriver.initialize() }

//export nvmlInitWithFlags
func nvmlInitWithFlags(C.u32) C.int { return theDriver.initialize() }

//export nvmlShutdown
func nvmlShutdown() C.int { return theDriver.shutdown() }

// Texts of nvmlErrorString. The texts live as long as the process, as callers expect.
var (
	errorTexts = map[C.int]*C.char{
		success:             C.CString("Success"),
		errUninitialized:    C.CString("Uninitialized"),
		errInvalidArgument:  C.CString("Invalid Argument"),
		errNotSupported:     C.CString("Not Supported"),
		errNotFound:         C.CString("Not Found"),
		errInsufficientSize: C.CString("Insufficient Size"),
		errDriverNotLoaded:  C.CString("Driver Not Loaded"),
		errTimeout:          C.CString("Timeout"),
		errGPUIsLost:        C.CString("GPU is lost"),
		errVersionMismatch:  C.CString("Argument Version Mismatch"),
	}
	unknownErrorText = C.CString("Unknown Error")
)

//export nvmlErrorString
func nvmlErrorString(code C.int) *C.char {
	if text, ok := errorTexts[code]; ok {
		return text
	}
	return unknownErrorText
}

//export nvmlSystemGetDriverVersion
func nvmlSystemGetDriverVersion(version *C.char, length C.u32) C.int {
	return withState(func(s *fakegpu.State) C.int { return put(version, length, s.DriverVersion) })
}

//export nvmlSystemGetNVMLVersion
func nvmlSystemGetNVMLVersion(version *C.char, length C.u32) C.int {
	return withState(func(s *fakegpu.State) C.int { return put(version, length, "13."+s.DriverVersion) })
}

//export nvmlSystemGetCudaDriverVersion
func nvmlSystemGetCudaDriverVersion(version *C.int) C.int {
	return withState(func(s *fakegpu.State) C.int { return set(version, C.int(s.CUDAVersion)) })
}

//export nvmlSystemGetCudaDriverVersion_v2
func nvmlSystemGetCudaDriverVersion_v2(version *C.int) C.int {
	return nvmlSystemGetCudaDriverVersion(version)
}

//export nvmlDeviceGetCount
func nvmlDeviceGetCount(count *C.u32) C.int {
	return withState(func(s *fakegpu.State) C.int { return set(count, C.u32(len(s.Devices))) })
}

//export nvmlDeviceGetCount_v2
func nvmlDeviceGetCount_v2(count *C.u32) C.int { return nvmlDeviceGetCount(count) }

// find gives out the handle of the first device that matches. nvml.h: a lost device has no handle.
func find(out *unsafe.Pointer, matches func(int, *fakegpu.Device) bool, none C.int) C.int {
	return withState(func(s *fakegpu.State) C.int {
		for i := range s.Devices {
			if !matches(i, &s.Devices[i]) {
				continue
			}
			if s.Devices[i].Lost {
				return errGPUIsLost
			}
			return set(out, deviceHandle(s.Devices[i].UUID))
		}
		return none
	})
}

//export nvmlDeviceGetHandleByIndex
func nvmlDeviceGetHandleByIndex(index C.u32, device *unsafe.Pointer) C.int {
	return find(device, func(i int, _ *fakegpu.Device) bool { return i == int(index) }, errInvalidArgument)
}

//export nvmlDeviceGetHandleByIndex_v2
func nvmlDeviceGetHandleByIndex_v2(index C.u32, device *unsafe.Pointer) C.int {
	return nvmlDeviceGetHandleByIndex(index, device)
}

// nvmlDeviceGetHandleByUUID takes the UUIDs of MIG devices too.
//
//export nvmlDeviceGetHandleByUUID
func nvmlDeviceGetHandleByUUID(uuid *C.char, device *unsafe.Pointer) C.int {
	if uuid == nil {
		return errInvalidArgument
	}
	want := C.GoString(uuid)
	return withState(func(s *fakegpu.State) C.int {
		d, instance := s.Find(want)
		switch {
		case d == nil || instance != nil && !d.MIG.Enabled:
			return errNotFound
		case d.Lost:
			return errGPUIsLost
		}
		return set(device, deviceHandle(want))
	})
}

//export nvmlDeviceGetHandleByPciBusId
func nvmlDeviceGetHandleByPciBusId(id *C.char, device *unsafe.Pointer) C.int {
	if id == nil {
		return errInvalidArgument
	}
	want := C.GoString(id)
	return find(device, func(_ int, d *fakegpu.Device) bool { return d.PCIBusID == want }, errNotFound)
}

//export nvmlDeviceGetHandleByPciBusId_v2
func nvmlDeviceGetHandleByPciBusId_v2(id *C.char, device *unsafe.Pointer) C.int {
	return nvmlDeviceGetHandleByPciBusId(id, device)
}
