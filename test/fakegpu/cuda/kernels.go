package main

/*
#include <stdint.h>
#include <stdlib.h>
typedef uint64_t u64;
*/
import "C"

import (
	"strconv"
	"strings"
	"unsafe"
)

// attributeSMs is the number of CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.
const attributeSMs = 16

// sms returns how many SMs the process may use: of a client of MPS its percentage of them, rounded down to an even
// number, and at least eight. An H100 with driver 580.159 behaved so; here it holds for all models.
func (p *program) sms(device int) int {
	all := p.devices[device].SMs
	if p.client == nil || p.load.Percent == 0 {
		return all
	}
	return max(min(8, all), int(float64(all)*p.load.Percent/100)&^1)
}

//export cuDeviceGetName
func cuDeviceGetName(name *C.char, length C.int, device C.int) C.int {
	return onDevice(device, func(p *program, i int) C.int {
		if name == nil || length < 1 {
			return errInvalidValue
		}
		out := unsafe.Slice((*byte)(unsafe.Pointer(name)), int(length))
		n := copy(out[:len(out)-1], p.devices[i].Name)
		out[n] = 0
		return success
	})
}

//export cuDeviceGetAttribute
func cuDeviceGetAttribute(value *C.int, which, device C.int) C.int {
	return onDevice(device, func(p *program, i int) C.int {
		if which != attributeSMs {
			return errInvalidValue
		}
		return set(value, C.int(p.sms(i)))
	})
}

//export cuDeviceTotalMem_v2
func cuDeviceTotalMem_v2(total *C.size_t, device C.int) C.int {
	return onDevice(device, func(p *program, i int) C.int {
		return set(total, C.size_t(p.devices[i].Memory-p.devices[i].Reserved))
	})
}

//export cuMemGetInfo_v2
func cuMemGetInfo_v2(free, total *C.size_t) C.int {
	return working(func(p *program) C.int {
		all := p.devices[0].Memory - p.devices[0].Reserved
		if code := set(total, C.size_t(all)); code != success {
			return code
		}
		return set(free, C.size_t(all-min(all, p.load.Memory)))
	})
}

//export cuModuleLoadData
func cuModuleLoadData(module *unsafe.Pointer, image unsafe.Pointer) C.int {
	return working(func(*program) C.int {
		if image == nil {
			return errInvalidValue
		}
		return set(module, C.malloc(1))
	})
}

//export cuModuleGetFunction
func cuModuleGetFunction(function *unsafe.Pointer, module unsafe.Pointer, name *C.char) C.int {
	return working(func(p *program) C.int {
		if function == nil || name == nil {
			return errInvalidValue
		}
		handle := C.malloc(1)
		p.kernels[handle] = C.GoString(name)
		*function = handle
		return success
	})
}

//export cuLaunchKernel
func cuLaunchKernel(function unsafe.Pointer, gridX, gridY, gridZ, blockX, blockY, blockZ, shared C.uint, stream unsafe.Pointer,
	params, extra *unsafe.Pointer) C.int {
	return working(func(p *program) C.int {
		name, ok := p.kernels[function]
		if !ok || params == nil {
			return errInvalidValue
		}
		switch name {
		case "fault":
			p.fault()
			return success // the work begins, and fails later
		case "where":
			p.spread[*(*C.u64)(*params)] = true
		}
		load := p.load
		load.InFlight = true
		return p.change(load)
	})
}

// fault is a write to an illegal address.
func (p *program) fault() {
	if p.client == nil {
		p.faulted = true
		return
	}
	_ = p.client.Fault() // the context is broken in either case
}

//export cuMemHostAlloc
func cuMemHostAlloc(pointer *unsafe.Pointer, size C.size_t, flags C.uint) C.int {
	return working(func(*program) C.int {
		if pointer == nil || size == 0 {
			return errInvalidValue
		}
		*pointer = C.calloc(1, size)
		return success
	})
}

//export cuMemcpyHtoDAsync_v2
func cuMemcpyHtoDAsync_v2(to C.u64, from unsafe.Pointer, size C.size_t, stream unsafe.Pointer) C.int {
	return inFlight()
}

//export cuMemcpyDtoHAsync_v2
func cuMemcpyDtoHAsync_v2(to unsafe.Pointer, from C.u64, size C.size_t, stream unsafe.Pointer) C.int {
	if code := inFlight(); code != success {
		return code
	}
	return working(func(p *program) C.int {
		if p.spread[from] {
			sms := uint32(max(p.sms(0), 1))
			for i := range unsafe.Slice((*uint32)(to), int(size)/4) {
				unsafe.Slice((*uint32)(to), int(size)/4)[i] = uint32(i) % sms
			}
		}
		return success
	})
}

func inFlight() C.int {
	return working(func(p *program) C.int {
		load := p.load
		load.InFlight = true
		return p.change(load)
	})
}

// limitOf reads a client's limit of memory in bytes, 0 for none. On an H100 with driver 580.159 an entry names the
// device by its number, its UUID or the UUID's beginning. An entry that is malformed or names a device that the process
// does not see drops the whole variable.
func (p *program) limitOf(value string) uint64 {
	var bytes uint64
	for _, entry := range strings.Split(value, ",") {
		name, amount, ok := strings.Cut(entry, "=")
		if !ok || len(amount) < 2 || !p.sees(name) {
			return 0
		}
		n, err := strconv.ParseUint(amount[:len(amount)-1], 10, 32)
		shift, known := map[byte]int{'G': 30, 'M': 20}[amount[len(amount)-1]]
		if err != nil || !known {
			return 0
		}
		bytes = n << shift
	}
	return bytes
}

// sees reports whether a device of the process has this number or UUID.
func (p *program) sees(name string) bool {
	if n, err := strconv.Atoi(name); err == nil {
		return n >= 0 && n < len(p.devices)
	}
	for _, d := range p.devices {
		if strings.HasPrefix(strings.ToUpper(d.UUID), strings.ToUpper(name)) {
			return true
		}
	}
	return false
}
