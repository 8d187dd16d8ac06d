package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// bestFit prefers the device on which the least is left over, of slots and of memory together, whatever the node. Unlike
// packed it sees a device whose memory is nearly gone as nearly full.
//
// Example: a device with 5 of 10 slots and 4 of 40 GiB left has a remainder of 0.5 + 0.1, a rate of
// 1000000 − 600000/2 = 700000; one with 4 of 10 slots and 20 of 40 GiB left has 1000000 − 900000/2 = 550000.
var bestFit = Policy{
	Name: "bestfit",
	device: func(d *vgpu.Device, left vgpu.Use) int64 {
		return rateMax - (part(left.Slots, d.Slots)+part(left.Memory, d.Memory))/2
	},
	node: func(_, _ vgpu.Slots) int64 { return 0 },
}
