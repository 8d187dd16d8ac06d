package cuda

import (
	"cmp"
	"fmt"
	"slices"
)

// Error is a call that the CUDA driver refused or that showed an earlier failure.
type Error struct {
	// Call is the function, without the suffix of its version.
	Call string
	// Code is the CUresult; Name and Text are what the driver calls it, empty where it has no name for it.
	Code       int
	Name, Text string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (%d): %s", e.Call, cmp.Or(e.Name, "unknown error"), e.Code, cmp.Or(e.Text, "the driver has no text for it"))
}

// Codes of CUresult that mean something here. Source: CUDA driver API, "Data types used by CUDA driver".
const (
	outOfMemory       = 2
	stubLibrary       = 34
	mpsNotReady       = 807
	mpsMaxClients     = 808
	mpsMaxConnections = 809
)

// faults lists the codes that a client gets when the GPU or the server gave up its work: they stay until the process
// ends. Under MPS one client's fault breaks all.
var faults = []int{
	214, // ECC_UNCORRECTABLE
	700, // ILLEGAL_ADDRESS
	702, // LAUNCH_TIMEOUT
	710, // ASSERT
	714, // HARDWARE_STACK_ERROR
	715, // ILLEGAL_INSTRUCTION
	716, // MISALIGNED_ADDRESS
	717, // INVALID_ADDRESS_SPACE
	718, // INVALID_PC
	719, // LAUNCH_FAILED
	806, // MPS_RPC_FAILURE
}

// Full reports that the device has no room for another client or for its memory. The device still serves its clients.
func (e *Error) Full() bool {
	return e.Code == outOfMemory || e.Code == mpsMaxClients || e.Code == mpsMaxConnections
}

// NotReady reports that the MPS server refuses new clients at present.
func (e *Error) NotReady() bool { return e.Code == mpsNotReady }

// Fault reports that the device broke work that it had accepted.
func (e *Error) Fault() bool { return slices.Contains(faults, e.Code) }

// Stub reports that the library is the one for linking, not the driver's.
func (e *Error) Stub() bool { return e.Code == stubLibrary }
