// Command nvml is a libnvidia-ml.so.1 for machines without a GPU. Build it with
//
//	go build -buildmode=c-shared -o libnvidia-ml.so.1 ./test/fakegpu/nvml
//
// It exports, under their versioned and plain names, the NVML calls that go-nvml resolves for what Tandem asks, and
// answers them from the state file (see package fakegpu). A missing or broken file, a strange handle or a null pointer
// is an NVML error code, never a crash. The answers follow nvml.h; none was compared with a real driver.
//
// A process of Go can load it: two Go runtimes then live side by side. It is never unloaded (-z nodelete), so its
// state outlives nvmlShutdown.
package main

/*
#include <stdlib.h>
#include "abi.h"
*/
import "C"

import (
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

func main() {}

// NVML's return codes.
const (
	success              C.int = 0
	errUninitialized     C.int = 1
	errInvalidArgument   C.int = 2
	errNotSupported      C.int = 3
	errNotFound          C.int = 6
	errInsufficientSize  C.int = 7
	errDriverNotLoaded   C.int = 9
	errTimeout           C.int = 10
	errGPUIsLost         C.int = 15
	errVersionMismatch   C.int = 25
	errUnknown           C.int = 999
	notAvailableInstance       = 0xFFFFFFFF
)

// driver is what a process sees of the pretended driver.
type driver struct {
	mu    sync.Mutex
	inits int
	path  string
	// stamp of the file that state was read from.
	stamp stamp
	state *fakegpu.State
}

// stamp tells one version of the state file from the next: the file is replaced, so its inode changes too.
type stamp struct {
	modified time.Time
	size     int64
	inode    uint64
}

var theDriver driver

// initialize counts one more user. Like the real library it fails when there is no driver.
func (d *driver) initialize() C.int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inits == 0 {
		// The C environment: a Go runtime inside of a library does not see what its host set later.
		d.path = C.GoString(C.getenv(stateVariable))
		d.state = nil
	}
	if d.read() == nil {
		return errDriverNotLoaded
	}
	d.inits++
	return success
}

var stateVariable = C.CString(fakegpu.StateVariable)

func (d *driver) shutdown() C.int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inits == 0 {
		return errUninitialized
	}
	d.inits--
	return success
}

// current returns the state as the file is now.
func (d *driver) current() (*fakegpu.State, C.int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inits == 0 {
		return nil, errUninitialized
	}
	s := d.read()
	if s == nil {
		return nil, errUnknown
	}
	return s, success
}

// read returns nil if there is no sound state file. A returned state is never changed.
func (d *driver) read() *fakegpu.State {
	info, err := os.Stat(d.path)
	if err != nil {
		d.state = nil
		return nil
	}
	now := stamp{modified: info.ModTime(), size: info.Size(), inode: inode(info)}
	if d.state != nil && now == d.stamp {
		return d.state
	}
	s, err := fakegpu.Load(d.path)
	if err != nil {
		d.state = nil
		return nil
	}
	d.state, d.stamp = &s, now
	return d.state
}

// withState runs fn on the current state. It is the one door into the library: a mistake in fn ends in an error code,
// not in the death of the host process.
func withState(fn func(*fakegpu.State) C.int) (code C.int) {
	defer func() {
		if recover() != nil {
			code = errUnknown
		}
	}()
	s, code := theDriver.current()
	if code != success {
		return code
	}
	return fn(s)
}

// withDevice runs fn on the device behind a handle, unless it is lost.
func withDevice(handle unsafe.Pointer, fn func(*fakegpu.State, *fakegpu.Device, int) C.int) C.int {
	return withState(func(s *fakegpu.State) C.int {
		i, code := deviceIndex(s, handle)
		if code != success {
			return code
		}
		if s.Devices[i].Lost {
			return errGPUIsLost
		}
		return fn(s, &s.Devices[i], i)
	})
}

// deviceIndex tells which device a handle means. A device that the state file no longer has is lost.
func deviceIndex(s *fakegpu.State, handle unsafe.Pointer) (int, C.int) {
	i := int(C.fake_device_index(handle))
	switch {
	case i < 0:
		return 0, errInvalidArgument
	case i >= len(s.Devices):
		return 0, errGPUIsLost
	}
	return i, success
}

func deviceHandle(i int) unsafe.Pointer { return C.fake_device(C.int(i)) }

// put writes a string with its end into a buffer of the caller.
func put(buffer *C.char, size C.u32, s string) C.int {
	if buffer == nil {
		return errInvalidArgument
	}
	if int(size) < len(s)+1 {
		return errInsufficientSize
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(buffer)), len(s)+1)
	copy(out, s)
	out[len(s)] = 0
	return success
}

// set writes a value into memory of the caller.
func set[T any](out *T, value T) C.int {
	if out == nil {
		return errInvalidArgument
	}
	*out = value
	return success
}
