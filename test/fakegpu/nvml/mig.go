package main

/*
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

//export nvmlDeviceGetMigMode
func nvmlDeviceGetMigMode(device unsafe.Pointer, current, pending *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
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
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if d.Major < 8 {
			return set(count, 0)
		}
		return set(count, fakegpu.MaxInstances)
	})
}

//export nvmlDeviceGetMigDeviceHandleByIndex
func nvmlDeviceGetMigDeviceHandleByIndex(device unsafe.Pointer, index C.u32, out *unsafe.Pointer) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		switch {
		case index >= fakegpu.MaxInstances:
			return errInvalidArgument
		case !d.MIG.Enabled || int(index) >= len(d.MIG.Instances):
			return errNotFound
		}
		return set(out, deviceHandle(d.MIG.Instances[index].UUID))
	})
}

//export nvmlDeviceIsMigDeviceHandle
func nvmlDeviceIsMigDeviceHandle(device unsafe.Pointer, is *C.u32) C.int {
	return withTarget(device, func(t target) C.int {
		if t.instance != nil {
			return set(is, 1)
		}
		return set(is, 0)
	})
}

//export nvmlDeviceGetDeviceHandleFromMigDeviceHandle
func nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig unsafe.Pointer, device *unsafe.Pointer) C.int {
	return withInstance(mig, func(t target) C.int { return set(device, deviceHandle(t.device.UUID)) })
}

//export nvmlDeviceGetGpuInstanceId
func nvmlDeviceGetGpuInstanceId(mig unsafe.Pointer, id *C.u32) C.int {
	return withInstance(mig, func(t target) C.int { return set(id, C.u32(t.instance.GI)) })
}

//export nvmlDeviceGetComputeInstanceId
func nvmlDeviceGetComputeInstanceId(mig unsafe.Pointer, id *C.u32) C.int {
	return withInstance(mig, func(t target) C.int { return set(id, C.u32(t.instance.CI)) })
}

// profile is a shape of GPU instance. Its number is nvml.h's NVML_GPU_INSTANCE_PROFILE_…; ID is the driver's, as
// `nvidia-smi mig -lgip` prints it on an A100.
type profile struct{ number, slices, eighths, id int }

// profiles by compute slices and eighths of the memory. Source: NVIDIA MIG user guide, "Supported MIG Profiles".
var profiles = []profile{
	{0, 1, 1, 19}, {9, 1, 2, 15}, {1, 2, 2, 14}, {2, 3, 4, 9}, {3, 4, 4, 5}, {4, 7, 8, 0},
}

// slicesOf reads the compute slices of "1g.5gb", 1 if it is something else.
func slicesOf(name string) int {
	n := 1
	if _, err := fmt.Sscanf(name, "%dg.", &n); err != nil {
		return 1
	}
	return n
}

// profileOf finds the shape of an instance: its slices, and the memory that is nearest.
func profileOf(t target) profile {
	best := profiles[0]
	for _, p := range profiles {
		if p.slices == slicesOf(t.instance.Profile) && (best.slices != p.slices || p.distance(t) < best.distance(t)) {
			best = p
		}
	}
	return best
}

func (p profile) distance(t target) uint64 {
	want := t.device.Memory / 8 * uint64(p.eighths)
	return max(want, t.instance.Memory) - min(want, t.instance.Memory)
}

// multiprocessors of one compute slice, as on an A100.
const multiprocessors = 14

//export nvmlDeviceGetAttributes
func nvmlDeviceGetAttributes(mig unsafe.Pointer, out *C.fake_attributes) C.int {
	return withInstance(mig, func(t target) C.int {
		p := profileOf(t)
		return set(out, C.fake_attributes{
			multiprocessors: C.u32(multiprocessors * p.slices), copyEngines: C.u32(p.eighths),
			gpuSlices: C.u32(p.slices), computeSlices: C.u32(p.slices), memoryMiB: C.u64(t.instance.Memory >> 20),
		})
	})
}

//export nvmlDeviceGetAttributes_v2
func nvmlDeviceGetAttributes_v2(mig unsafe.Pointer, out *C.fake_attributes) C.int {
	return nvmlDeviceGetAttributes(mig, out)
}

//export nvmlDeviceGetGpuInstanceById
func nvmlDeviceGetGpuInstanceById(device unsafe.Pointer, id C.u32, out *unsafe.Pointer) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		for _, i := range d.MIG.Instances {
			if d.MIG.Enabled && i.GI == int(id) {
				return set(out, C.fake_gpu_instance(theDriver.slot(i.UUID)))
			}
		}
		return errNotFound
	})
}

//export nvmlDeviceGetGpuInstanceProfileInfo
func nvmlDeviceGetGpuInstanceProfileInfo(device unsafe.Pointer, number C.u32, out *C.fake_gpu_profile) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if d.Major < 8 {
			return errNotSupported
		}
		for _, p := range profiles {
			if p.number == int(number) {
				return set(out, C.fake_gpu_profile{
					id: C.u32(p.id), slices: C.u32(p.slices), instances: C.u32(fakegpu.MaxInstances / p.slices),
					multiprocessors: C.u32(multiprocessors * p.slices), copyEngines: C.u32(p.eighths),
					memoryMiB: C.u64(d.Memory >> 20 / 8 * uint64(p.eighths)),
				})
			}
		}
		return errNotSupported
	})
}

//export nvmlGpuInstanceGetInfo
func nvmlGpuInstanceGetInfo(instance unsafe.Pointer, out *C.fake_gpu_instance_info) C.int {
	return withSlot(C.fake_gpu_instance_slot(instance), func(t target) C.int {
		p := profileOf(t)
		return set(out, C.fake_gpu_instance_info{
			device: deviceHandle(t.device.UUID), id: C.u32(t.instance.GI), profile: C.u32(p.id), size: C.u32(p.eighths),
		})
	})
}

// nvmlGpuInstanceGetComputeInstanceById knows the one compute instance that is as large as its GPU instance.
//
//export nvmlGpuInstanceGetComputeInstanceById
func nvmlGpuInstanceGetComputeInstanceById(instance unsafe.Pointer, id C.u32, out *unsafe.Pointer) C.int {
	return withSlot(C.fake_gpu_instance_slot(instance), func(t target) C.int {
		if int(id) != t.instance.CI {
			return errNotFound
		}
		return set(out, C.fake_compute_instance(theDriver.slot(t.instance.UUID)))
	})
}

// computeProfile is nvml.h's NVML_COMPUTE_INSTANCE_PROFILE_… for a number of slices, which is also its ID here.
var computeProfile = map[int]C.u32{1: 0, 2: 1, 3: 2, 4: 3, 7: 4}

//export nvmlGpuInstanceGetComputeInstanceProfileInfo
func nvmlGpuInstanceGetComputeInstanceProfileInfo(instance unsafe.Pointer, number, engine C.u32, out *C.fake_compute_profile) C.int {
	return withSlot(C.fake_gpu_instance_slot(instance), func(t target) C.int {
		slices := profileOf(t).slices
		if engine != 0 || computeProfile[slices] != number {
			return errNotSupported
		}
		return set(out, C.fake_compute_profile{
			id: number, slices: C.u32(slices), instances: 1, multiprocessors: C.u32(multiprocessors * slices),
		})
	})
}

//export nvmlComputeInstanceGetInfo
func nvmlComputeInstanceGetInfo(instance unsafe.Pointer, out *C.fake_compute_instance_info) C.int {
	slot := C.fake_compute_instance_slot(instance)
	return withSlot(slot, func(t target) C.int {
		slices := profileOf(t).slices
		return set(out, C.fake_compute_instance_info{
			device: deviceHandle(t.device.UUID), instance: C.fake_gpu_instance(slot), id: C.u32(t.instance.CI),
			profile: computeProfile[slices], size: C.u32(slices),
		})
	})
}

//export nvmlComputeInstanceGetInfo_v2
func nvmlComputeInstanceGetInfo_v2(instance unsafe.Pointer, out *C.fake_compute_instance_info) C.int {
	return nvmlComputeInstanceGetInfo(instance, out)
}
