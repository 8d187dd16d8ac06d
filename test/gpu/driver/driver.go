// Package driver makes a program of the GPU suite work on a GPU through the CUDA driver API. The program loads kernels
// in PTX, gives them to the device and moves memory.
//
// The package opens libcuda.so.1, which comes with NVIDIA's driver, at run time, so it needs neither CUDA's headers nor
// its compiler. The package uses one device, the first that the process sees, and one stream. Signatures and numbers
// are those of the CUDA driver API's documentation. The agent does not use it: internal/agent/cuda has what the agent
// needs of CUDA.
package driver

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef uint64_t ptr;
typedef struct { unsigned char bytes[16]; } uuid;

// A CUdevice is an int, a CUdeviceptr 64 bits wide, a CUresult an enum; contexts, modules, functions and streams are pointers.
typedef struct {
	int (*cuInit)(unsigned);
	int (*cuDriverGetVersion)(int *);
	int (*cuDeviceGetCount)(int *);
	int (*cuDeviceGet)(int *, int);
	int (*cuDeviceGetName)(char *, int, int);
	int (*cuDeviceGetUuid_v2)(uuid *, int);
	int (*cuDeviceGetAttribute)(int *, int, int);
	int (*cuDeviceTotalMem_v2)(size_t *, int);
	int (*cuDevicePrimaryCtxRetain)(void **, int);
	int (*cuDevicePrimaryCtxRelease_v2)(int);
	int (*cuCtxSetCurrent)(void *);
	int (*cuCtxSynchronize)(void);
	int (*cuModuleLoadData)(void **, const void *);
	int (*cuModuleGetFunction)(void **, void *, const char *);
	int (*cuLaunchKernel)(void *, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *, void **,
		void **);
	int (*cuMemAlloc_v2)(ptr *, size_t);
	int (*cuMemFree_v2)(ptr);
	int (*cuMemGetInfo_v2)(size_t *, size_t *);
	int (*cuMemsetD8_v2)(ptr, unsigned char, size_t);
	int (*cuMemHostAlloc)(void **, size_t, unsigned);
	int (*cuMemcpyHtoDAsync_v2)(ptr, const void *, size_t, void *);
	int (*cuMemcpyDtoHAsync_v2)(void *, ptr, size_t, void *);
	int (*cuGetErrorName)(int, const char **);
} api;

// load fills in the functions and returns the name of the first that the library lacks, NULL for none.
static const char *load(void *library, api *a) {
#define LOAD(name) if (!(a->name = (__typeof__(a->name))dlsym(library, #name))) return #name;
	LOAD(cuInit) LOAD(cuDriverGetVersion) LOAD(cuDeviceGetCount) LOAD(cuDeviceGet) LOAD(cuDeviceGetName)
	LOAD(cuDeviceGetUuid_v2) LOAD(cuDeviceGetAttribute) LOAD(cuDeviceTotalMem_v2)
	LOAD(cuDevicePrimaryCtxRetain) LOAD(cuDevicePrimaryCtxRelease_v2) LOAD(cuCtxSetCurrent) LOAD(cuCtxSynchronize)
	LOAD(cuModuleLoadData) LOAD(cuModuleGetFunction) LOAD(cuLaunchKernel)
	LOAD(cuMemAlloc_v2) LOAD(cuMemFree_v2) LOAD(cuMemGetInfo_v2) LOAD(cuMemsetD8_v2) LOAD(cuMemHostAlloc)
	LOAD(cuMemcpyHtoDAsync_v2) LOAD(cuMemcpyDtoHAsync_v2) LOAD(cuGetErrorName)
	return NULL;
}

static int init(api *a) { return a->cuInit(0); }
static int version(api *a, int *v) { return a->cuDriverGetVersion(v); }
static int count(api *a, int *n) { return a->cuDeviceGetCount(n); }
static int device(api *a, int *d) { return a->cuDeviceGet(d, 0); }
static int name(api *a, char *s, int n, int d) { return a->cuDeviceGetName(s, n, d); }
static int get_uuid(api *a, uuid *u, int d) { return a->cuDeviceGetUuid_v2(u, d); }
static int attribute(api *a, int *v, int which, int d) { return a->cuDeviceGetAttribute(v, which, d); }
static int total(api *a, size_t *n, int d) { return a->cuDeviceTotalMem_v2(n, d); }
static int retain(api *a, void **c, int d) { return a->cuDevicePrimaryCtxRetain(c, d); }
static int release(api *a, int d) { return a->cuDevicePrimaryCtxRelease_v2(d); }
static int current(api *a, void *c) { return a->cuCtxSetCurrent(c); }
static int synchronize(api *a) { return a->cuCtxSynchronize(); }
static int module(api *a, void **m, const char *text) { return a->cuModuleLoadData(m, text); }
static int function(api *a, void **f, void *m, const char *s) { return a->cuModuleGetFunction(f, m, s); }
// launch gives a kernel two parameters of 64 bits and one of 32.
static int launch(api *a, void *f, unsigned blocks, unsigned threads, ptr x, ptr y, unsigned n) {
	void *params[] = {&x, &y, &n};
	return a->cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, NULL, params, NULL);
}
static int allocate(api *a, ptr *p, size_t n) { return a->cuMemAlloc_v2(p, n); }
static int release_memory(api *a, ptr p) { return a->cuMemFree_v2(p); }
static int info(api *a, size_t *f, size_t *t) { return a->cuMemGetInfo_v2(f, t); }
static int set(api *a, ptr p, unsigned char v, size_t n) { return a->cuMemsetD8_v2(p, v, n); }
static int pin(api *a, void **p, size_t n) { return a->cuMemHostAlloc(p, n, 0); }
static int to_device(api *a, ptr d, const void *h, size_t n) { return a->cuMemcpyHtoDAsync_v2(d, h, n, NULL); }
static int to_host(api *a, void *h, ptr d, size_t n) { return a->cuMemcpyDtoHAsync_v2(h, d, n, NULL); }
static const char *error_name(api *a, int code) { const char *s = NULL; a->cuGetErrorName(code, &s); return s; }
*/
import "C"

import (
	"encoding/hex"
	"fmt"
	"runtime"
	"unsafe"
)

// Error is a call that the driver refused.
type Error struct {
	Call string
	Code int
	Name string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code) }

// GPU is the first device that the process sees, with a context on it.
type GPU struct {
	api     *C.api
	device  C.int
	context unsafe.Pointer
	// Name of the product, UUID with the prefix "GPU-", or "MIG-" where NVML says so.
	Name, UUID string
	// CUDA is 1000·major + 10·minor of the newest CUDA that the driver runs.
	CUDA int
	// SMs that the driver reports to this process.
	SMs int
}

// Numbers of CUdevice_attribute.
const attributeSMs = 16

// Open makes a context. The calling goroutine stays on its thread from then on, and only it may use the GPU.
func Open() (*GPU, error) {
	runtime.LockOSThread()
	soname := C.CString("libcuda.so.1")
	defer C.free(unsafe.Pointer(soname))
	library := C.dlopen(soname, C.RTLD_NOW|C.RTLD_LOCAL)
	if library == nil {
		return nil, fmt.Errorf("load libcuda.so.1: %s", C.GoString(C.dlerror()))
	}
	g := &GPU{api: new(C.api)}
	if missing := C.load(library, g.api); missing != nil {
		return nil, fmt.Errorf("load libcuda.so.1: it lacks %s", C.GoString(missing))
	}
	return g, g.open()
}

func (g *GPU) open() error {
	if err := g.check("cuInit", C.init(g.api)); err != nil {
		return err
	}
	var n, value C.int
	if err := g.check("cuDeviceGetCount", C.count(g.api, &n)); err != nil {
		return err
	}
	if n < 1 {
		return &Error{Call: "cuDeviceGetCount", Code: 100, Name: "no device"}
	}
	var text [128]C.char
	var id C.uuid
	for _, step := range []struct {
		call string
		code func() C.int
	}{
		{"cuDeviceGet", func() C.int { return C.device(g.api, &g.device) }},
		{"cuDeviceGetName", func() C.int { return C.name(g.api, &text[0], C.int(len(text)), g.device) }},
		{"cuDeviceGetUuid", func() C.int { return C.get_uuid(g.api, &id, g.device) }},
		{"cuDriverGetVersion", func() C.int { return C.version(g.api, &n) }},
		{"cuDevicePrimaryCtxRetain", func() C.int { return C.retain(g.api, &g.context, g.device) }},
		{"cuCtxSetCurrent", func() C.int { return C.current(g.api, g.context) }},
		{"cuDeviceGetAttribute", func() C.int { return C.attribute(g.api, &value, attributeSMs, g.device) }},
	} {
		if err := g.check(step.call, step.code()); err != nil {
			return err
		}
	}
	g.Name, g.CUDA, g.SMs = C.GoString(&text[0]), int(n), int(value)
	h := hex.EncodeToString(C.GoBytes(unsafe.Pointer(&id), 16))
	g.UUID = "GPU-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	return nil
}

// check makes an error of what a call returned.
func (g *GPU) check(call string, code C.int) error {
	if code == 0 {
		return nil
	}
	return &Error{Call: call, Code: int(code), Name: C.GoString(C.error_name(g.api, code))}
}

// Close gives the context back.
func (g *GPU) Close() error { return g.check("cuDevicePrimaryCtxRelease", C.release(g.api, g.device)) }

// Kernel is a function of a module.
type Kernel struct{ function unsafe.Pointer }

// Load compiles a module in PTX and returns its kernels of the given names.
func (g *GPU) Load(ptx string, names ...string) (map[string]Kernel, error) {
	text := C.CString(ptx)
	defer C.free(unsafe.Pointer(text))
	var module unsafe.Pointer
	if err := g.check("cuModuleLoadData", C.module(g.api, &module, text)); err != nil {
		return nil, err
	}
	kernels := map[string]Kernel{}
	for _, name := range names {
		s := C.CString(name)
		var f unsafe.Pointer
		code := C.function(g.api, &f, module, s)
		C.free(unsafe.Pointer(s))
		if err := g.check("cuModuleGetFunction "+name, code); err != nil {
			return nil, err
		}
		kernels[name] = Kernel{function: f}
	}
	return kernels, nil
}

// Address is one in the memory of the device.
type Address uint64

// Launch gives the device a kernel of so many blocks and threads. All kernels take two addresses, or other numbers of
// 64 bits, and one number of 32. Launch does not wait.
func (g *GPU) Launch(k Kernel, blocks, threads int, x, y Address, n int) error {
	return g.check("cuLaunchKernel", C.launch(g.api, k.function, C.uint(blocks), C.uint(threads), C.ptr(x), C.ptr(y), C.uint(n)))
}

// Wait waits for all work of this process.
func (g *GPU) Wait() error { return g.check("cuCtxSynchronize", C.synchronize(g.api)) }

// Allocate takes memory of the device.
func (g *GPU) Allocate(bytes int) (Address, error) {
	var p C.ptr
	err := g.check("cuMemAlloc", C.allocate(g.api, &p, C.size_t(bytes)))
	return Address(p), err
}

// Free gives memory back.
func (g *GPU) Free(p Address) error { return g.check("cuMemFree", C.release_memory(g.api, C.ptr(p))) }

// Fill sets bytes of the device's memory.
func (g *GPU) Fill(p Address, value byte, bytes int) error {
	return g.check("cuMemsetD8", C.set(g.api, C.ptr(p), C.uchar(value), C.size_t(bytes)))
}

// Memory returns the results of cuMemGetInfo and cuDeviceTotalMem, in bytes.
func (g *GPU) Memory() (free, total, device uint64, err error) {
	var f, t, d C.size_t
	if err := g.check("cuMemGetInfo", C.info(g.api, &f, &t)); err != nil {
		return 0, 0, 0, err
	}
	err = g.check("cuDeviceTotalMem", C.total(g.api, &d, g.device))
	return uint64(f), uint64(t), uint64(d), err
}

// Pin takes memory of the host that the device can read and write at full speed.
func (g *GPU) Pin(bytes int) ([]byte, error) {
	var p unsafe.Pointer
	if err := g.check("cuMemHostAlloc", C.pin(g.api, &p, C.size_t(bytes))); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

// ToDevice and ToHost begin a copy to and from pinned memory. Neither waits.
func (g *GPU) ToDevice(to Address, from []byte) error {
	return g.check("cuMemcpyHtoDAsync", C.to_device(g.api, C.ptr(to), unsafe.Pointer(&from[0]), C.size_t(len(from))))
}

// ToHost is ToDevice's way back.
func (g *GPU) ToHost(to []byte, from Address) error {
	return g.check("cuMemcpyDtoHAsync", C.to_host(g.api, unsafe.Pointer(&to[0]), C.ptr(from), C.size_t(len(to))))
}
