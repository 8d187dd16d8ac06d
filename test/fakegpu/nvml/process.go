package main

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// list writes processes in the caller's array. nvml.h: with too little room it tells how much is needed.
func list[T any](device unsafe.Pointer, count *C.u32, out *T, one func(fakegpu.Process) T) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		if count == nil {
			return errInvalidArgument
		}
		room := *count
		*count = C.u32(len(d.Processes))
		if int(room) < len(d.Processes) {
			return errInsufficientSize
		}
		if len(d.Processes) == 0 {
			return success
		}
		if out == nil {
			return errInvalidArgument
		}
		infos := unsafe.Slice(out, len(d.Processes))
		for i, p := range d.Processes {
			infos[i] = one(p)
		}
		return success
	})
}

func processV1(p fakegpu.Process) C.fake_process_v1 {
	return C.fake_process_v1{pid: C.u32(p.PID), memory: C.u64(p.Memory)}
}

func process(p fakegpu.Process) C.fake_process {
	return C.fake_process{
		pid: C.u32(p.PID), memory: C.u64(p.Memory), gpuInstance: notAvailableInstance, computeInstance: notAvailableInstance,
	}
}

//export nvmlDeviceGetComputeRunningProcesses
func nvmlDeviceGetComputeRunningProcesses(device unsafe.Pointer, count *C.u32, infos *C.fake_process_v1) C.int {
	return list(device, count, infos, processV1)
}

//export nvmlDeviceGetComputeRunningProcesses_v2
func nvmlDeviceGetComputeRunningProcesses_v2(device unsafe.Pointer, count *C.u32, infos *C.fake_process) C.int {
	return list(device, count, infos, process)
}

//export nvmlDeviceGetComputeRunningProcesses_v3
func nvmlDeviceGetComputeRunningProcesses_v3(device unsafe.Pointer, count *C.u32, infos *C.fake_process) C.int {
	return list(device, count, infos, process)
}

//export nvmlDeviceGetMPSComputeRunningProcesses
func nvmlDeviceGetMPSComputeRunningProcesses(device unsafe.Pointer, count *C.u32, infos *C.fake_process_v1) C.int {
	return list(device, count, infos, processV1)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v2
func nvmlDeviceGetMPSComputeRunningProcesses_v2(device unsafe.Pointer, count *C.u32, infos *C.fake_process) C.int {
	return list(device, count, infos, process)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v3
func nvmlDeviceGetMPSComputeRunningProcesses_v3(device unsafe.Pointer, count *C.u32, infos *C.fake_process) C.int {
	return list(device, count, infos, process)
}
