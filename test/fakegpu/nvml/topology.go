package main

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// levels are NVML's topology levels by the number of steps that two PCI paths have in common.
var levels = [...]C.u32{50, 40, 30, 20, 10}

//export nvmlDeviceGetTopologyCommonAncestor
func nvmlDeviceGetTopologyCommonAncestor(one, other unsafe.Pointer, level *C.u32) C.int {
	return withPair(one, other, func(_ *fakegpu.State, a, b *fakegpu.Device) C.int {
		common := 0
		for common < len(a.PCIPath) && a.PCIPath[common] == b.PCIPath[common] {
			common++
		}
		return set(level, levels[common])
	})
}

// withPair runs fn on two different devices.
func withPair(one, other unsafe.Pointer, fn func(s *fakegpu.State, a, b *fakegpu.Device) C.int) C.int {
	return withDevice(one, func(s *fakegpu.State, a *fakegpu.Device) C.int {
		return withDevice(other, func(_ *fakegpu.State, b *fakegpu.Device) C.int {
			if a.UUID == b.UUID {
				return errInvalidArgument
			}
			return fn(s, a, b)
		})
	})
}

// withLink runs fn on a link of a device. nvml.h: a link number out of range is an invalid argument, a device without
// any link does not support the question.
func withLink(device unsafe.Pointer, number C.u32, fn func(*fakegpu.State, fakegpu.NVLink) C.int) C.int {
	return withDevice(device, func(s *fakegpu.State, d *fakegpu.Device) C.int {
		switch {
		case len(d.NVLinks) == 0:
			return errNotSupported
		case int(number) >= len(d.NVLinks):
			return errInvalidArgument
		}
		return fn(s, d.NVLinks[number])
	})
}

//export nvmlDeviceGetNvLinkState
func nvmlDeviceGetNvLinkState(device unsafe.Pointer, link C.u32, active *C.u32) C.int {
	return withLink(device, link, func(_ *fakegpu.State, l fakegpu.NVLink) C.int {
		if l.Down {
			return set(active, 0)
		}
		return set(active, 1)
	})
}

//export nvmlDeviceGetNvLinkRemoteDeviceType
func nvmlDeviceGetNvLinkRemoteDeviceType(device unsafe.Pointer, link C.u32, kind *C.u32) C.int {
	return withLink(device, link, func(_ *fakegpu.State, l fakegpu.NVLink) C.int {
		if l.Peer == fakegpu.ToSwitch {
			return set(kind, 2)
		}
		return set(kind, 0)
	})
}

//export nvmlDeviceGetNvLinkRemotePciInfo
func nvmlDeviceGetNvLinkRemotePciInfo(device unsafe.Pointer, link C.u32, info *C.fake_pci) C.int {
	return withLink(device, link, func(s *fakegpu.State, l fakegpu.NVLink) C.int {
		if l.Peer == fakegpu.ToSwitch {
			return set(info, pci("00000000:C4:00.0"))
		}
		return set(info, pci(s.Devices[l.Peer].PCIBusID))
	})
}

//export nvmlDeviceGetNvLinkRemotePciInfo_v2
func nvmlDeviceGetNvLinkRemotePciInfo_v2(device unsafe.Pointer, link C.u32, info *C.fake_pci) C.int {
	return nvmlDeviceGetNvLinkRemotePciInfo(device, link, info)
}

// nvmlDeviceGetP2PStatus answers for NVLink (capability 2) by the links and says yes to all that PCIe does.
//
//export nvmlDeviceGetP2PStatus
func nvmlDeviceGetP2PStatus(one, other unsafe.Pointer, capability C.u32, status *C.u32) C.int {
	const ok, notSupported = 0, 5
	return withPair(one, other, func(s *fakegpu.State, a, b *fakegpu.Device) C.int {
		if capability != 2 || joined(s, a, b) {
			return set(status, ok)
		}
		return set(status, notSupported)
	})
}

// joined says whether an active NVLink path leads from a to b.
func joined(s *fakegpu.State, a, b *fakegpu.Device) bool {
	for _, l := range a.NVLinks {
		if l.Down {
			continue
		}
		if l.Peer == fakegpu.ToSwitch && onSwitch(b) || l.Peer != fakegpu.ToSwitch && s.Devices[l.Peer].UUID == b.UUID {
			return true
		}
	}
	return false
}

func onSwitch(d *fakegpu.Device) bool {
	for _, l := range d.NVLinks {
		if l.Peer == fakegpu.ToSwitch && !l.Down {
			return true
		}
	}
	return false
}
