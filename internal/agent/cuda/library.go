package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdint.h>
#include <dlfcn.h>
#include <stdlib.h>

// A CUdevice is an int, a CUcontext a pointer, a CUdeviceptr 64 bits wide, a CUresult an enum.
typedef uint64_t devptr;

static int call_init(void *f, unsigned flags) { return ((int (*)(unsigned))f)(flags); }
static int call_count(void *f, int *count) { return ((int (*)(int *))f)(count); }
static int call_get(void *f, int *device, int ordinal) { return ((int (*)(int *, int))f)(device, ordinal); }
static int call_retain(void *f, void **context, int device) { return ((int (*)(void **, int))f)(context, device); }
static int call_release(void *f, int device) { return ((int (*)(int))f)(device); }
static int call_current(void *f, void *context) { return ((int (*)(void *))f)(context); }
static int call_alloc(void *f, devptr *p, size_t n) { return ((int (*)(devptr *, size_t))f)(p, n); }
static int call_set(void *f, devptr p, unsigned char value, size_t n) {
	return ((int (*)(devptr, unsigned char, size_t))f)(p, value, n);
}
static int call_free(void *f, devptr p) { return ((int (*)(devptr))f)(p); }
static int call_synchronize(void *f) { return ((int (*)(void))f)(); }
static int call_text(void *f, int result, const char **text) { return ((int (*)(int, const char **))f)(result, text); }
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// libraryName is what the driver installs; the name without the number belongs to the development package.
const libraryName = "libcuda.so.1"

// ErrNoLibrary says that the process cannot load a CUDA driver library.
var ErrNoLibrary = errors.New("the CUDA driver library cannot be loaded")

// Library is the loaded CUDA driver library. The library stays in the process for life: the driver has threads.
type Library struct {
	functions map[string]unsafe.Pointer
}

// required lists the functions that the work needs, under the names that are in the library. A suffix marks the form
// with 64 bits or the newer one (cuda.h maps the plain name to it).
var required = []string{
	"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent",
	"cuMemAlloc_v2", "cuMemsetD8_v2", "cuMemFree_v2", "cuCtxSynchronize", "cuGetErrorName", "cuGetErrorString",
}

// Open loads libcuda.so.1 by the ordinary library path. It returns ErrNoLibrary where it cannot load the library, and
// another error where the library lacks a function.
func Open() (*Library, error) { return open(libraryName) }

func open(name string) (*Library, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	handle := C.dlopen(cname, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoLibrary, C.GoString(C.dlerror()))
	}
	l := &Library{functions: map[string]unsafe.Pointer{}}
	for _, name := range required {
		symbol := C.CString(name)
		l.functions[name] = C.dlsym(handle, symbol)
		C.free(unsafe.Pointer(symbol))
		if l.functions[name] == nil {
			return nil, fmt.Errorf("load the CUDA driver library: %s lacks the function %s: its driver is older than CUDA 11", libraryName, name)
		}
	}
	return l, nil
}

// check makes an error of what a function returned.
func (l *Library) check(call string, result C.int) error {
	if result == 0 {
		return nil
	}
	return &Error{Call: call, Code: int(result), Name: l.text("cuGetErrorName", result), Text: l.text("cuGetErrorString", result)}
}

// text returns what the library says about a code; it does not know the codes of newer drivers.
func (l *Library) text(call string, result C.int) string {
	var text *C.char
	if C.call_text(l.functions[call], result, &text) != 0 || text == nil {
		return ""
	}
	return C.GoString(text)
}

func (l *Library) initialize() error {
	return l.check("cuInit", C.call_init(l.functions["cuInit"], 0))
}

func (l *Library) count() (int, error) {
	var n C.int
	err := l.check("cuDeviceGetCount", C.call_count(l.functions["cuDeviceGetCount"], &n))
	return int(n), err
}

func (l *Library) device(ordinal int) (C.int, error) {
	var d C.int
	err := l.check("cuDeviceGet", C.call_get(l.functions["cuDeviceGet"], &d, C.int(ordinal)))
	return d, err
}

func (l *Library) retain(d C.int) (unsafe.Pointer, error) {
	var context unsafe.Pointer
	err := l.check("cuDevicePrimaryCtxRetain", C.call_retain(l.functions["cuDevicePrimaryCtxRetain"], &context, d))
	return context, err
}

func (l *Library) release(d C.int) error {
	return l.check("cuDevicePrimaryCtxRelease", C.call_release(l.functions["cuDevicePrimaryCtxRelease_v2"], d))
}

func (l *Library) makeCurrent(context unsafe.Pointer) error {
	return l.check("cuCtxSetCurrent", C.call_current(l.functions["cuCtxSetCurrent"], context))
}

func (l *Library) allocate(bytes int) (C.devptr, error) {
	var p C.devptr
	err := l.check("cuMemAlloc", C.call_alloc(l.functions["cuMemAlloc_v2"], &p, C.size_t(bytes)))
	return p, err
}

func (l *Library) set(p C.devptr, value byte, bytes int) error {
	return l.check("cuMemsetD8", C.call_set(l.functions["cuMemsetD8_v2"], p, C.uchar(value), C.size_t(bytes)))
}

func (l *Library) free(p C.devptr) error {
	return l.check("cuMemFree", C.call_free(l.functions["cuMemFree_v2"], p))
}

func (l *Library) synchronize() error {
	return l.check("cuCtxSynchronize", C.call_synchronize(l.functions["cuCtxSynchronize"]))
}
