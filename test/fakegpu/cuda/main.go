// Command cuda is a libcuda.so.1 for machines without a GPU. Build it with
//
//	go build -buildmode=c-shared -o libcuda.so.1 ./test/fakegpu/cuda
//
// The library exports the few calls of the CUDA driver API that the agent's canary and the GPU suite (test/gpu) make:
// context, allocation, memset, copies, kernels, synchronise. Kernels have names and no code: one called fault is a
// write to an illegal address, and one called where returns the SMs that its blocks would have run on. With a daemon in
// CUDA_MPS_PIPE_DIRECTORY the program is its client from cuInit on, and blocks there if the server is wedged. Between
// cuMemsetD8 and cuCtxSynchronize it has work in flight. Without one it takes the device of the state file as the
// compute mode allows. CUDA_VISIBLE_DEVICES holds numbers or UUIDs.
//
// Read in the CUDA driver API's documentation: signatures, numbers and names of errors, and that errors of a broken
// context stay. Seen on an H100 with driver 580.159: after a fault all clients see the error of the one that made it
// (ILLEGAL_ADDRESS here), and MPS_RPC_FAILURE when the server has gone. No memory exists behind the pointers.
package main

/*
#include <stdint.h>
#include <stdlib.h>
typedef uint64_t u64;
typedef struct { unsigned char bytes[16]; } fake_uuid;
*/
import "C"

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

func main() {}

// program is what the driver knows of this process.
type program struct {
	mu        sync.Mutex
	initiated bool
	statePath string
	cuda      int
	devices   []fakegpu.Device
	// client is the context under MPS, context the one without.
	client  *fakegpu.Client
	context *fakegpu.Context
	load    fakegpu.ClientLoad
	// retained counts the uses of the primary context of each device.
	retained map[int]int
	// allocated are the sizes by address.
	allocated map[C.u64]uint64
	// kernels are the names of functions by their handles; spread are the addresses that hold the numbers of SMs.
	kernels map[unsafe.Pointer]string
	spread  map[C.u64]bool
	// faulted: a kernel of this process wrote where it may not, without MPS.
	faulted bool
	next    C.u64
	handles map[int]unsafe.Pointer
}

var self = program{
	retained: map[int]int{}, allocated: map[C.u64]uint64{}, next: 0x7f00_0000_0000, handles: map[int]unsafe.Pointer{},
	kernels: map[unsafe.Pointer]string{}, spread: map[C.u64]bool{},
}

// getenv reads the C environment: a Go runtime inside of a library does not see what its host set later.
func getenv(name string) (string, bool) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	value := C.getenv(n)
	if value == nil {
		return "", false
	}
	return C.GoString(value), true
}

// read looks for the devices that the process sees.
func (p *program) read() C.int {
	p.statePath, _ = getenv(fakegpu.StateVariable)
	s, err := fakegpu.Load(p.statePath)
	if err != nil {
		return errNoDevice
	}
	p.cuda = s.CUDAVersion
	list, restricted := getenv("CUDA_VISIBLE_DEVICES")
	p.devices = visible(s.Devices, list, restricted)
	if len(p.devices) == 0 {
		return errNoDevice
	}
	return success
}

// visible applies CUDA_VISIBLE_DEVICES: numbers or UUIDs, up to the first that is neither. Lost devices are not there.
// A MIG instance stands as a device with the instance's UUID and memory.
func visible(all []fakegpu.Device, list string, restricted bool) []fakegpu.Device {
	var there []fakegpu.Device
	for _, d := range all {
		if !d.Lost {
			there = append(there, d)
		}
	}
	if !restricted {
		return there
	}
	chosen := make([]fakegpu.Device, 0, len(there))
	state := fakegpu.State{Devices: there}
	for _, word := range strings.Split(list, ",") {
		word = strings.TrimSpace(word)
		if i, err := strconv.Atoi(word); err == nil && i >= 0 && i < len(there) {
			chosen = append(chosen, there[i])
			continue
		}
		d, instance := state.Find(word)
		if d == nil {
			break
		}
		one := *d
		if instance != nil {
			one.UUID, one.Memory, one.Reserved, one.MIG = instance.UUID, instance.Memory, 0, fakegpu.MIG{}
		}
		chosen = append(chosen, one)
	}
	return chosen
}

// defaultPipe is CUDA's own default for the directory of a daemon.
const defaultPipe = "/tmp/nvidia-mps"

// connect makes this process a client of MPS if there is a daemon. The call can block for ever.
func (p *program) connect() C.int {
	pipe, _ := getenv("CUDA_MPS_PIPE_DIRECTORY")
	if pipe == "" {
		pipe = defaultPipe
	}
	if p.client != nil {
		return success
	}
	if _, err := os.Stat(fakegpu.SocketPath(pipe)); err != nil {
		return success
	}
	p.load = fakegpu.ClientLoad{UID: os.Getuid()}
	if percent, ok := getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"); ok {
		p.load.Percent, _ = strconv.ParseFloat(percent, 64)
	}
	if limit, ok := getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"); ok {
		p.load.MemoryLimit = p.limitOf(limit)
	}
	client, err := fakegpu.Dial(context.Background(), pipe, p.load)
	switch {
	case err == nil:
		p.client = client
		return success
	case errors.Is(err, fakegpu.ErrFault):
		return errMPSServerNotReady
	case errors.Is(err, fakegpu.ErrTooManyContexts):
		return errMPSMaxClients
	case errors.Is(err, fakegpu.ErrOutOfMemory):
		return errOutOfMemory
	}
	return errMPSConnectionFailed
}

// broken returns the error that stays once the context is broken.
func (p *program) broken() C.int {
	if p.faulted {
		return errIllegalAddress
	}
	if p.client == nil {
		return success
	}
	err := p.client.Err()
	switch {
	case err == nil:
		return success
	case errors.Is(err, fakegpu.ErrTerminated):
		return errMPSClientTerminated
	case errors.Is(err, fakegpu.ErrFault):
		return errIllegalAddress
	}
	return errMPSRPCFailure
}

// retain makes the context of a device.
func (p *program) retain(device int) C.int {
	if code := p.connect(); code != success {
		return code
	}
	if code := p.broken(); code != success {
		return code
	}
	if p.client == nil && p.context == nil {
		c, err := fakegpu.Hold(p.statePath, &p.devices[device], fakegpu.Process{PID: uint32(os.Getpid())})
		switch {
		case errors.Is(err, fakegpu.ErrUnavailable):
			return errDeviceUnavailable
		case err != nil:
			return errUnknown
		}
		p.context = c
	}
	p.retained[device]++
	return success
}

// release gives one use back; with the last, the process is no longer a client.
func (p *program) release(device int) C.int {
	if p.retained[device] == 0 {
		return errInvalidContext
	}
	if p.retained[device]--; p.retained[device] == 0 {
		delete(p.retained, device)
	}
	if len(p.retained) > 0 {
		return success
	}
	code := p.broken()
	if p.client != nil {
		p.client.Close()
	}
	if p.context != nil {
		p.context.Release()
	}
	p.client, p.context = nil, nil
	clear(p.allocated)
	return code
}

// change publishes the present use of this process.
func (p *program) change(load fakegpu.ClientLoad) C.int {
	switch {
	case p.client != nil:
		if err := p.client.Load(load); errors.Is(err, fakegpu.ErrOutOfMemory) {
			return errOutOfMemory
		} else if err != nil {
			return p.broken()
		}
	case p.context != nil:
		if load.Memory > p.devices[0].Memory-p.devices[0].Reserved {
			return errOutOfMemory
		}
		if p.context.Set(fakegpu.Process{PID: uint32(os.Getpid()), Memory: load.Memory}) != nil {
			return errUnknown
		}
	default:
		return errInvalidContext
	}
	p.load = load
	return success
}

// uuidBytes reads the hexadecimal part of a UUID.
func uuidBytes(uuid string) (out C.fake_uuid) {
	_, digits, _ := strings.Cut(uuid, "-")
	raw, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
	if err != nil {
		return out
	}
	for i := range min(len(raw), len(out.bytes)) {
		out.bytes[i] = C.uchar(raw[i])
	}
	return out
}
