package placement

import (
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
)

// dotProd prefers the node with the smallest product of its free room and the pod's request. The score adds the
// products of CPU and of GPU, in parts of the largest node. On the node it takes the device with the least left.
// (DotProd of FGD, §6.1, after Tetris, SIGCOMM 2014.)
//
// Example: a pod with 16 cores and one GPU on a node with 64 cores and 4 GPUs free: (0.125·0.5 + 0.125·0.5)/2 = 0.0625,
// a rate of 93 percent.
var dotProd = Policy{
	Name:     "dotprod",
	perMilli: perDevice,
	device:   leastLeft,
	rate: func(v *view) int64 {
		idle := fragmentation.Idle(v.n, v.free)
		asked := idle - fragmentation.Idle(v.n, v.left)
		const ratio = largestCPU / largestGPU
		cpu := min(largestCPU, v.room.MilliCPU) * min(largestCPU, v.r.Host.MilliCPU)
		gpu := min(largestGPU, idle) * min(largestGPU, asked) * ratio * ratio
		const whole = 2 * largestCPU * largestCPU
		return 100 * (whole - cpu - gpu) / whole * percent
	},
}
