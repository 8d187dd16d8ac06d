package main

/*
#include "abi.h"
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

//export nvmlDeviceGetUUID
func nvmlDeviceGetUUID(device unsafe.Pointer, uuid *C.char, length C.u32) C.int {
	if i, ok := migIndex(device); ok {
		return withState(func(s *fakegpu.State) C.int {
			d, instance := i/C.FAKE_INSTANCES, i%C.FAKE_INSTANCES
			if d >= len(s.Devices) || instance >= len(s.Devices[d].MIG.Instances) {
				return errNotFound
			}
			return put(uuid, length, s.Devices[d].MIG.Instances[instance].UUID)
		})
	}
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int { return put(uuid, length, d.UUID) })
}

//export nvmlDeviceGetName
func nvmlDeviceGetName(device unsafe.Pointer, name *C.char, length C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int { return put(name, length, d.Name) })
}

//export nvmlDeviceGetIndex
func nvmlDeviceGetIndex(device unsafe.Pointer, index *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, _ *fakegpu.Device, i int) C.int { return set(index, C.u32(i)) })
}

//export nvmlDeviceGetMinorNumber
func nvmlDeviceGetMinorNumber(device unsafe.Pointer, minor *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int { return set(minor, C.u32(d.MinorNumber)) })
}

//export nvmlDeviceGetCudaComputeCapability
func nvmlDeviceGetCudaComputeCapability(device unsafe.Pointer, major, minor *C.int) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		if code := set(major, C.int(d.Major)); code != success {
			return code
		}
		return set(minor, C.int(d.Minor))
	})
}

//export nvmlDeviceGetMemoryInfo
func nvmlDeviceGetMemoryInfo(device unsafe.Pointer, memory *C.fake_memory) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		used := d.Reserved + d.UsedMemory
		return set(memory, C.fake_memory{total: C.u64(d.Memory), free: C.u64(d.Memory - used), used: C.u64(used)})
	})
}

// memoryVersion2 is nvml.h's NVML_STRUCT_VERSION(Memory, 2): the size, and the version in the top byte.
const memoryVersion2 = C.sizeof_fake_memory_v2 | 2<<24

//export nvmlDeviceGetMemoryInfo_v2
func nvmlDeviceGetMemoryInfo_v2(device unsafe.Pointer, memory *C.fake_memory_v2) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		if memory == nil {
			return errInvalidArgument
		}
		if memory.version != memoryVersion2 {
			return errVersionMismatch
		}
		return set(memory, C.fake_memory_v2{
			version: memoryVersion2, total: C.u64(d.Memory), reserved: C.u64(d.Reserved),
			free: C.u64(d.Memory - d.Reserved - d.UsedMemory), used: C.u64(d.UsedMemory),
		})
	})
}

// pci describes a bus ID like 00000000:07:00.0 in NVML's form.
func pci(id string) C.fake_pci {
	var p C.fake_pci
	fields := strings.FieldsFunc(id, func(r rune) bool { return r == ':' || r == '.' })
	var n [3]uint64
	for i := range min(len(fields), len(n)) {
		n[i], _ = strconv.ParseUint(fields[i], 16, 32)
	}
	p.domain, p.bus, p.device = C.u32(n[0]), C.u32(n[1]), C.u32(n[2])
	chars(p.busId[:], id)
	chars(p.busIdLegacy[:], fmt.Sprintf("%04X:%02X:%02X.0", n[0], n[1], n[2]))
	return p
}

func chars(out []C.char, s string) {
	for i := range min(len(s), len(out)-1) {
		out[i] = C.char(s[i])
	}
}

//export nvmlDeviceGetPciInfo
func nvmlDeviceGetPciInfo(device unsafe.Pointer, info *C.fake_pci) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int { return set(info, pci(d.PCIBusID)) })
}

//export nvmlDeviceGetPciInfo_v2
func nvmlDeviceGetPciInfo_v2(device unsafe.Pointer, info *C.fake_pci) C.int {
	return nvmlDeviceGetPciInfo(device, info)
}

//export nvmlDeviceGetPciInfo_v3
func nvmlDeviceGetPciInfo_v3(device unsafe.Pointer, info *C.fake_pci) C.int {
	return nvmlDeviceGetPciInfo(device, info)
}

// nvmlDeviceGetNumaNodeId is about GPUs whose memory is a NUMA node of its own (Grace Hopper): none of the profiles.
//
//export nvmlDeviceGetNumaNodeId
func nvmlDeviceGetNumaNodeId(device unsafe.Pointer, node *C.u32) C.int {
	return withDevice(device, func(*fakegpu.State, *fakegpu.Device, int) C.int { return errNotSupported })
}

//export nvmlDeviceGetMemoryAffinity
func nvmlDeviceGetMemoryAffinity(device unsafe.Pointer, size C.u32, nodes *C.ulong_set, scope C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		if nodes == nil || size == 0 || scope > 1 {
			return errInvalidArgument
		}
		if d.NUMANode < 0 {
			return errNotSupported
		}
		words := unsafe.Slice(nodes, int(size))
		clear(words)
		if d.NUMANode/64 >= len(words) {
			return errInsufficientSize
		}
		words[d.NUMANode/64] = 1 << (d.NUMANode % 64)
		return success
	})
}

//export nvmlDeviceGetUtilizationRates
func nvmlDeviceGetUtilizationRates(device unsafe.Pointer, rates *C.fake_utilization) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		return set(rates, C.fake_utilization{gpu: C.u32(d.GPUUtilization), memory: C.u32(d.MemoryUtilization)})
	})
}

// nvmlDeviceGetTotalEccErrors counts uncorrected errors (type 1); the fake has no corrected ones.
//
//export nvmlDeviceGetTotalEccErrors
func nvmlDeviceGetTotalEccErrors(device unsafe.Pointer, kind, counter C.u32, count *C.u64) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		if kind > 1 || counter > 1 {
			return errInvalidArgument
		}
		if kind == 0 {
			return set(count, 0)
		}
		return set(count, C.u64(d.UncorrectedECC))
	})
}

// computeModeFile remembers a mode that a process set, since only the driver keeps it and not the process.
func computeModeFile(d *fakegpu.Device) string {
	return theDriver.path + "." + d.UUID + ".compute-mode"
}

//export nvmlDeviceGetComputeMode
func nvmlDeviceGetComputeMode(device unsafe.Pointer, mode *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		if raw, err := os.ReadFile(computeModeFile(d)); err == nil {
			if n, err := strconv.ParseUint(string(raw), 10, 32); err == nil {
				return set(mode, C.u32(n))
			}
		}
		return set(mode, C.u32(d.ComputeMode))
	})
}

//export nvmlDeviceSetComputeMode
func nvmlDeviceSetComputeMode(device unsafe.Pointer, mode C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device, _ int) C.int {
		if mode > 3 {
			return errInvalidArgument
		}
		if mode == 1 {
			return errNotSupported
		}
		if os.WriteFile(computeModeFile(d), fmt.Append(nil, uint32(mode)), 0o644) != nil {
			return errUnknown
		}
		return success
	})
}
