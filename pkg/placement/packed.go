package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// packed prefers the device that is the fullest in slots after the placement, then the fuller node. So whole devices
// and whole nodes stay empty for pods that need them.
//
// Example: 3 slots on devices of 10 with 6, 8 and 10 free leave 3, 5 and 7: the rates are 700000, 500000 and 300000.
var packed = Policy{
	Name:     "packed",
	perMilli: perDevice,
	rate:     mean(fullest),
	device:   fullest,
	node:     part[vgpu.Slots],
}

// fullest rates a device by the slots that are not left.
func fullest(d *vgpu.Device, left vgpu.Use) int64 { return rateMax - part(left.Slots, d.Slots) }
