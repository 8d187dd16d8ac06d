package placement

import (
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Largest node of the cluster that the FGD paper evaluates on: it and the policies that it compares with (bestfit,
// dotprod, clustering) measure amounts in parts of it. Larger amounts count like the largest.
const (
	largestCPU = 128_000 // milli-cores
	largestGPU = 8_000   // milli-GPU
)

// percent is a hundredth of rateMax. The policies that the FGD paper compares score in whole percents: ties are many,
// and go to the first node by name.
const percent = rateMax / 100

// bestFit prefers the node with the least left over. The rest is the sum of CPU and GPU, both in parts of the largest
// node. On the node it takes the device with the least left, of slots and of memory together. (BestFit of FGD, §6.1.)
//
// Example: 32 cores and 2 GPUs left are 0.25 of each, a rate of 75 percent.
var bestFit = Policy{
	Name:     "bestfit",
	perMilli: perDevice,
	device:   leastLeft,
	rate: func(v *view) int64 {
		cpu, gpu := min(largestCPU, v.roomLeft.MilliCPU), min(largestGPU, fragmentation.Idle(v.n, v.left))
		both := cpu + gpu*(largestCPU/largestGPU)
		return 100 * (2*largestCPU - both) / (2 * largestCPU) * percent
	},
}

// leastLeft rates a device by the slots and memory that are not left. Unlike fullest it sees a device whose memory is
// nearly gone as nearly full.
//
// Example: 5 of 10 slots and 4 of 40 GiB left are 1000000 − (500000 + 100000)/2 = 700000.
func leastLeft(d *vgpu.Device, left vgpu.Use) int64 {
	return rateMax - (part(left.Slots, d.Slots)+part(left.Memory, d.Memory))/2
}
