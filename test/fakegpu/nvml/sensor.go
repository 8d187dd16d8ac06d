package main

/*
#include "abi.h"
*/
import "C"

import (
	"time"
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

//export nvmlDeviceGetTemperature
func nvmlDeviceGetTemperature(device unsafe.Pointer, sensor C.u32, degrees *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if sensor != 0 {
			return errInvalidArgument
		}
		return set(degrees, C.u32(d.Temperature))
	})
}

// temperatureVersion1 is nvml.h's NVML_STRUCT_VERSION(Temperature, 1).
const temperatureVersion1 = C.sizeof_fake_temperature | 1<<24

//export nvmlDeviceGetTemperatureV
func nvmlDeviceGetTemperatureV(device unsafe.Pointer, out *C.fake_temperature) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		switch {
		case out == nil || out.sensor != 0:
			return errInvalidArgument
		case out.version != temperatureVersion1:
			return errVersionMismatch
		}
		out.temperature = C.int(d.Temperature)
		return success
	})
}

//export nvmlDeviceGetPowerUsage
func nvmlDeviceGetPowerUsage(device unsafe.Pointer, milliwatts *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int { return set(milliwatts, C.u32(d.PowerMilliwatts)) })
}

//export nvmlDeviceGetCurrentClocksEventReasons
func nvmlDeviceGetCurrentClocksEventReasons(device unsafe.Pointer, reasons *C.u64) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int { return set(reasons, C.u64(d.ThrottleReasons)) })
}

//export nvmlDeviceGetCurrentClocksThrottleReasons
func nvmlDeviceGetCurrentClocksThrottleReasons(device unsafe.Pointer, reasons *C.u64) C.int {
	return nvmlDeviceGetCurrentClocksEventReasons(device, reasons)
}

// nvmlDeviceGetTotalEccErrors counts since the last reset; the fake's devices have no life before it.
//
//export nvmlDeviceGetTotalEccErrors
func nvmlDeviceGetTotalEccErrors(device unsafe.Pointer, kind, counter C.u32, count *C.u64) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if kind > 1 || counter > 1 {
			return errInvalidArgument
		}
		if kind == 0 {
			return set(count, C.u64(d.CorrectedECC))
		}
		return set(count, C.u64(d.UncorrectedECC))
	})
}

func flag(on bool) C.u32 {
	if on {
		return 1
	}
	return 0
}

// nvmlDeviceGetRemappedRows knows the two flags; the counts are 0. nvml.h: for Ampere and newer.
//
//export nvmlDeviceGetRemappedRows
func nvmlDeviceGetRemappedRows(device unsafe.Pointer, corrected, uncorrected, pending, failure *C.u32) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if d.Major < 8 {
			return errNotSupported
		}
		for _, out := range []struct {
			to    *C.u32
			value C.u32
		}{{corrected, 0}, {uncorrected, 0}, {pending, flag(d.RowRemapPending)}, {failure, flag(d.RowRemapFailure)}} {
			if code := set(out.to, out.value); code != success {
				return code
			}
		}
		return success
	})
}

// Fields of nvml.h, NVML_FI_DEV_…, and its types of values.
const (
	fieldECCCorrected   = 3
	fieldECCUncorrected = 4
	fieldRemapPending   = 144
	fieldRemapFailure   = 145
	fieldRecoveryAction = 230

	unsignedInt      = 1
	unsignedLongLong = 3
)

// field reads one value. An unsigned int is also the low half of the eight bytes, as x86 and ARM have it.
func field(d *fakegpu.Device, id C.u32) (kind C.u32, value C.u64, code C.int) {
	switch id {
	case fieldECCCorrected:
		return unsignedLongLong, C.u64(d.CorrectedECC), success
	case fieldECCUncorrected:
		return unsignedLongLong, C.u64(d.UncorrectedECC), success
	case fieldRemapPending, fieldRemapFailure:
		if d.Major < 8 {
			break
		}
		return unsignedInt, C.u64(flag(id == fieldRemapPending && d.RowRemapPending || id == fieldRemapFailure && d.RowRemapFailure)), success
	case fieldRecoveryAction:
		if d.NoRecoveryAction {
			break
		}
		return unsignedInt, C.u64(d.RecoveryAction), success
	}
	return 0, 0, errNotSupported
}

// nvmlDeviceGetFieldValues succeeds with an unknown field: each field has a code of its own.
//
//export nvmlDeviceGetFieldValues
func nvmlDeviceGetFieldValues(device unsafe.Pointer, count C.int, values *C.fake_field) C.int {
	return withDevice(device, func(_ *fakegpu.State, d *fakegpu.Device) C.int {
		if values == nil || count <= 0 {
			return errInvalidArgument
		}
		all := unsafe.Slice(values, int(count))
		for i := range all {
			all[i].timestamp = C.longlong(time.Now().UnixMicro())
			all[i].kind, all[i].value, all[i].code = field(d, all[i].field)
		}
		return success
	})
}
