package main

/*
#include <stdint.h>
#include <stdlib.h>
typedef uint64_t u64;
typedef struct { unsigned char bytes[16]; } fake_uuid;
*/
import "C"

import "unsafe"

// call runs fn under the lock if cuInit has succeeded. All calls of the library go through it: a mistake in fn ends in
// an error code, not in the end of the host process.
func call(fn func(*program) C.int) (code C.int) {
	self.mu.Lock()
	defer self.mu.Unlock()
	defer func() {
		if recover() != nil {
			code = errUnknown
		}
	}()
	if !self.initiated {
		return errNotInitialized
	}
	return fn(&self)
}

// onDevice runs fn for a device that is there.
func onDevice(device C.int, fn func(*program, int) C.int) C.int {
	return call(func(p *program) C.int {
		if device < 0 || int(device) >= len(p.devices) {
			return errInvalidDevice
		}
		return fn(p, int(device))
	})
}

// working runs fn unless the context is broken.
func working(fn func(*program) C.int) C.int {
	return call(func(p *program) C.int {
		if len(p.retained) == 0 {
			return errInvalidContext
		}
		if code := p.broken(); code != success {
			return code
		}
		return fn(p)
	})
}

func set[T any](out *T, value T) C.int {
	if out == nil {
		return errInvalidValue
	}
	*out = value
	return success
}

//export cuInit
func cuInit(flags C.uint) C.int {
	self.mu.Lock()
	defer self.mu.Unlock()
	if flags != 0 {
		return errInvalidValue
	}
	if self.initiated {
		return success
	}
	if code := self.read(); code != success {
		return code
	}
	if code := self.connect(); code != success {
		return code
	}
	self.initiated = true
	return success
}

//export cuDriverGetVersion
func cuDriverGetVersion(version *C.int) C.int {
	self.mu.Lock()
	defer self.mu.Unlock()
	if self.cuda == 0 {
		_ = self.read()
	}
	return set(version, C.int(self.cuda))
}

//export cuDeviceGetCount
func cuDeviceGetCount(count *C.int) C.int {
	return call(func(p *program) C.int { return set(count, C.int(len(p.devices))) })
}

//export cuDeviceGet
func cuDeviceGet(device *C.int, ordinal C.int) C.int {
	return onDevice(ordinal, func(*program, int) C.int { return set(device, ordinal) })
}

//export cuDeviceGetUuid
func cuDeviceGetUuid(uuid *C.fake_uuid, device C.int) C.int {
	return onDevice(device, func(p *program, i int) C.int { return set(uuid, uuidBytes(p.devices[i].UUID)) })
}

//export cuDeviceGetUuid_v2
func cuDeviceGetUuid_v2(uuid *C.fake_uuid, device C.int) C.int { return cuDeviceGetUuid(uuid, device) }

//export cuDevicePrimaryCtxRetain
func cuDevicePrimaryCtxRetain(context *unsafe.Pointer, device C.int) C.int {
	return onDevice(device, func(p *program, i int) C.int {
		if context == nil {
			return errInvalidValue
		}
		if code := p.retain(i); code != success {
			return code
		}
		if p.handles[i] == nil {
			p.handles[i] = C.malloc(1)
		}
		*context = p.handles[i]
		return success
	})
}

//export cuDevicePrimaryCtxRelease
func cuDevicePrimaryCtxRelease(device C.int) C.int {
	return onDevice(device, func(p *program, i int) C.int { return p.release(i) })
}

//export cuDevicePrimaryCtxRelease_v2
func cuDevicePrimaryCtxRelease_v2(device C.int) C.int { return cuDevicePrimaryCtxRelease(device) }

//export cuCtxSetCurrent
func cuCtxSetCurrent(context unsafe.Pointer) C.int {
	return call(func(p *program) C.int {
		if context == nil {
			return success
		}
		for i, handle := range p.handles {
			if handle == context && p.retained[i] > 0 {
				return success
			}
		}
		return errInvalidContext
	})
}

//export cuMemAlloc_v2
func cuMemAlloc_v2(pointer *C.u64, size C.size_t) C.int {
	return working(func(p *program) C.int {
		if pointer == nil || size == 0 {
			return errInvalidValue
		}
		load := p.load
		load.Memory += uint64(size)
		if load.Memory < uint64(size) {
			return errOutOfMemory
		}
		if code := p.change(load); code != success {
			return code
		}
		*pointer = p.next
		p.allocated[p.next] = uint64(size)
		p.next += (size + 511) &^ 511
		return success
	})
}

//export cuMemFree_v2
func cuMemFree_v2(pointer C.u64) C.int {
	return working(func(p *program) C.int {
		size, ok := p.allocated[pointer]
		if !ok {
			return errInvalidValue
		}
		delete(p.allocated, pointer)
		load := p.load
		load.Memory -= size
		return p.change(load)
	})
}

//export cuMemsetD8_v2
func cuMemsetD8_v2(pointer C.u64, _ C.uchar, count C.size_t) C.int {
	return working(func(p *program) C.int {
		for start, size := range p.allocated {
			if pointer >= start && uint64(pointer-start)+uint64(count) <= size {
				load := p.load
				load.InFlight = true
				return p.change(load)
			}
		}
		return errInvalidValue
	})
}

//export cuCtxSynchronize
func cuCtxSynchronize() C.int {
	return working(func(p *program) C.int {
		load := p.load
		load.InFlight = false
		return p.change(load)
	})
}
