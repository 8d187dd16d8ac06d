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
	return withTarget(device, func(t target) C.int { return put(uuid, length, t.uuid()) })
}

//export nvmlDeviceGetName
func nvmlDeviceGetName(device unsafe.Pointer, name *C.char, length C.u32) C.int {
	return withTarget(device, func(t target) C.int {
		if t.instance != nil {
			return put(name, length, t.device.Name+" MIG "+t.instance.Profile)
		}
		return put(name, length, t.device.Name)
	})
}

//export nvmlDeviceGetIndex
func nvmlDeviceGetIndex(device unsafe.Pointer, index *C.u32) C.int {
	return withTarget(device, func(t target) C.int { return set(index, C.u32(t.index())) })
}

//export nvmlDeviceGetMinorNumber
func nvmlDeviceGetMinorNumber(device unsafe.Pointer, minor *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int { return set(minor, C.u32(d.MinorNumber)) })
}

//export nvmlDeviceGetCudaComputeCapability
func nvmlDeviceGetCudaComputeCapability(device unsafe.Pointer, major, minor *C.int) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if code := set(major, C.int(d.Major)); code != success {
			return code
		}
		return set(minor, C.int(d.Minor))
	})
}

// memory returns total, reserved and used bytes of a GPU or an instance. Used is without reserved.
func memory(t target) (total, reserved, used uint64) {
	used = usedBy(t)
	if t.instance != nil {
		return t.instance.Memory, 0, min(used, t.instance.Memory)
	}
	used += t.device.UsedMemory
	return t.device.Memory, t.device.Reserved, min(used, t.device.Memory-t.device.Reserved)
}

//export nvmlDeviceGetMemoryInfo
func nvmlDeviceGetMemoryInfo(device unsafe.Pointer, out *C.fake_memory) C.int {
	return withTarget(device, func(t target) C.int {
		total, reserved, used := memory(t)
		used += reserved
		return set(out, C.fake_memory{total: C.u64(total), free: C.u64(total - used), used: C.u64(used)})
	})
}

// memoryVersion2 is nvml.h's NVML_STRUCT_VERSION(Memory, 2): the size, and the version in the top byte.
const memoryVersion2 = C.sizeof_fake_memory_v2 | 2<<24

//export nvmlDeviceGetMemoryInfo_v2
func nvmlDeviceGetMemoryInfo_v2(device unsafe.Pointer, out *C.fake_memory_v2) C.int {
	return withTarget(device, func(t target) C.int {
		if out == nil {
			return errInvalidArgument
		}
		if out.version != memoryVersion2 {
			return errVersionMismatch
		}
		total, reserved, used := memory(t)
		return set(out, C.fake_memory_v2{
			version: memoryVersion2, total: C.u64(total), reserved: C.u64(reserved),
			free: C.u64(total - reserved - used), used: C.u64(used),
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
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int { return set(info, pci(d.PCIBusID)) })
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
	return withDevice(device, func(*fakegpu.State, *fakegpu.Device) C.int { return errNotSupported })
}

//export nvmlDeviceGetMemoryAffinity
func nvmlDeviceGetMemoryAffinity(device unsafe.Pointer, size C.u32, nodes *C.ulong_set, scope C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
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

//export nvmlDeviceGetComputeMode
func nvmlDeviceGetComputeMode(device unsafe.Pointer, mode *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int { return set(mode, C.u32(d.Mode(theDriver.path()))) })
}

//export nvmlDeviceSetComputeMode
func nvmlDeviceSetComputeMode(device unsafe.Pointer, mode C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if mode > 3 {
			return errInvalidArgument
		}
		// Mode 1, exclusive thread, no longer exists.
		if mode == 1 {
			return errNotSupported
		}
		if os.WriteFile(fakegpu.ModePath(theDriver.path(), d.UUID), fmt.Append(nil, uint32(mode)), 0o644) != nil {
			return errUnknown
		}
		return success
	})
}

// architectures are nvml.h's numbers by compute capability, 10·major + minor.
var architectures = []struct{ capability, number int }{{100, 10}, {90, 9}, {89, 8}, {80, 7}, {75, 6}, {70, 5}, {60, 4}}

//export nvmlDeviceGetArchitecture
func nvmlDeviceGetArchitecture(device unsafe.Pointer, architecture *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		for _, a := range architectures {
			if 10*d.Major+d.Minor >= a.capability {
				return set(architecture, C.u32(a.number))
			}
		}
		return set(architecture, 0xFFFFFFFF)
	})
}

// nvmlDeviceGetBrand says NVIDIA or Tesla, by the name.
//
//export nvmlDeviceGetBrand
func nvmlDeviceGetBrand(device unsafe.Pointer, brand *C.u32) C.int {
	const tesla, nvidia = 2, 14
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if strings.HasPrefix(d.Name, "Tesla") {
			return set(brand, tesla)
		}
		return set(brand, nvidia)
	})
}
