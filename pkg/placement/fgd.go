package placement

import (
	"math"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
)

// fgd prefers the place where the usual requests lose the least GPU by the pod, or gain the most: Fragmentation
// Gradient Descent (Weng et al., USENIX ATC 2023, §5). A loss of d milli-GPU less scores the percent of 1/(1 +
// e^(−d/1000)), rounded down, so that many places tie. Ties go to the device with the least left, then to the first
// node by name. The ties keep pods together: with finer scores, or random ties, the policy allocates less.
//
// As published, it uses the kinds of requests that make up 95 % of the pods, and CPU but not memory.
//
// Example: a pod that loses 300 milli-GPU is 100/(1 + e^0.3) = 42 percent.
var fgd = Policy{
	Name:    "fgd",
	neutral: rateMax / 2,
	// The slope of the published score at no loss: 25 percent a GPU.
	perMilli: rateMax / 4 / 1000,
	device:   leastLeft,
	usual: func(all *fragmentation.Mix) *fragmentation.Mix {
		return all.WithoutMemory().Typical(typicalOfFGD)
	},
	rate: func(v *view) int64 {
		less := v.before().Lost - v.after().Lost
		milli := float64(less) / float64(v.mix.Weight())
		return int64(100/(1+math.Exp(-milli/1000))) * percent
	},
}

// typicalOfFGD is the part of the pods, in percent, that the typical ones make up in the published evaluation. A larger
// part counts rarer requests, and takes longer.
const typicalOfFGD = 95
