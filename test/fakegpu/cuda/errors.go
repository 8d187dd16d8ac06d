package main

import "C"

// Codes of CUresult that the fake answers. Source: CUDA driver API, "Data types used by CUDA driver".
const (
	success                C.int = 0
	errInvalidValue        C.int = 1
	errOutOfMemory         C.int = 2
	errNotInitialized      C.int = 3
	errDeviceUnavailable   C.int = 46
	errNoDevice            C.int = 100
	errInvalidDevice       C.int = 101
	errInvalidContext      C.int = 201
	errIllegalAddress      C.int = 700
	errMPSConnectionFailed C.int = 805
	errMPSRPCFailure       C.int = 806
	errMPSServerNotReady   C.int = 807
	errMPSMaxClients       C.int = 808
	errMPSClientTerminated C.int = 810
	errUnknown             C.int = 999
)

// description is what CUDA calls an error. The strings live as long as the process, as callers expect.
type description struct{ name, text *C.char }

var descriptions = map[C.int]description{
	success:                describe("CUDA_SUCCESS", "no error"),
	errInvalidValue:        describe("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
	errOutOfMemory:         describe("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
	errNotInitialized:      describe("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
	errDeviceUnavailable:   describe("CUDA_ERROR_DEVICE_UNAVAILABLE", "device is busy or unavailable"),
	errNoDevice:            describe("CUDA_ERROR_NO_DEVICE", "no device is detected"),
	errInvalidDevice:       describe("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
	errInvalidContext:      describe("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
	errIllegalAddress:      describe("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
	errMPSConnectionFailed: describe("CUDA_ERROR_MPS_CONNECTION_FAILED", "the MPS client could not connect"),
	errMPSRPCFailure:       describe("CUDA_ERROR_MPS_RPC_FAILURE", "a call between the MPS client and the server failed"),
	errMPSServerNotReady:   describe("CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server takes no new client now"),
	errMPSMaxClients:       describe("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has as many clients as it can"),
	errMPSClientTerminated: describe("CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS client was terminated"),
	errUnknown:             describe("CUDA_ERROR_UNKNOWN", "unknown error"),
}

func describe(name, text string) description { return description{C.CString(name), C.CString(text)} }

// explain hands out one of the strings. CUDA sets the pointer to null for a code that it does not know.
func explain(code C.int, out **C.char, pick func(description) *C.char) C.int {
	if out == nil {
		return errInvalidValue
	}
	d, ok := descriptions[code]
	if !ok {
		*out = nil
		return errInvalidValue
	}
	*out = pick(d)
	return success
}

//export cuGetErrorName
func cuGetErrorName(code C.int, out **C.char) C.int {
	return explain(code, out, func(d description) *C.char { return d.name })
}

//export cuGetErrorString
func cuGetErrorString(code C.int, out **C.char) C.int {
	return explain(code, out, func(d description) *C.char { return d.text })
}
