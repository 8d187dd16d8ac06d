package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// spread prefers the device that is the emptiest in slots after the placement, then the emptier node. So neighbours are
// few.
//
// Example: 3 slots on devices of 10 with 6, 8 and 10 free leave 3, 5 and 7: the rates are 300000, 500000 and 700000.
var spread = Policy{
	Name:     "spread",
	perMilli: perDevice,
	rate:     mean(emptiest),
	device:   emptiest,
	node:     func(taken, of vgpu.Slots) int64 { return rateMax - part(taken, of) },
}

// emptiest rates a device by the slots that are left.
func emptiest(d *vgpu.Device, left vgpu.Use) int64 { return part(left.Slots, d.Slots) }
