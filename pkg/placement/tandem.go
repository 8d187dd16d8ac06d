package placement

import (
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
)

// tandem prefers the place where the usual requests lose the least GPU, like fgd. The policy also looks ahead: some
// free GPU will run out of CPU and memory on its host before requests use it. A part of that GPU counts as lost. So
// nodes with little CPU or memory beside their GPUs stay free for requests that need little. Memory counts as CPU does.
//
// The steps of losses are 40 milli-GPU. Within a step places tie. Ties go to the device with the least left, then to
// the first node by name, which keeps pods together. See docs/decisions/0009 for the alternatives and their results.
var tandem = Policy{
	Name:    "tandem",
	neutral: rateMax / 2,
	grain:   step,
	device:  leastLeft,
	usual:   func(all *fragmentation.Mix) *fragmentation.Mix { return all.Demanding(typicalOfTandem, demandOfTandem) },
	fills:   true,
	rate: func(v *view) int64 {
		before, after := v.before(), v.after()
		less := starvedPart*(before.Lost-after.Lost) + before.Starved - after.Starved + unfilledPart*(before.Unfilled-after.Unfilled)
		steps := floorDiv(less, (starvedPart+unfilledPart)*step*v.mix.Weight())
		return max(0, min(rateMax, rateMax/2+steps))
	},
}

const (
	// typicalOfTandem is the part of the pods, in percent, whose requests count. Less ignores the rare requests, more
	// costs time.
	typicalOfTandem = 99
	// demandOfTandem is the part of all demand, in percent, that these requests must make up; where they make up less,
	// all requests count. With 0 a cluster whose largest 3 % of the pods request half of the GPUs keeps no GPUs for
	// those pods: it filled to 41 % where 49 % fit (docs/decisions/0009). With 95 openb's gpushare80 fills worse than
	// under fgd.
	demandOfTandem = 90
	// starvedPart is the divisor of starved GPU: a fifth of it counts as lost. With a tenth CPU runs out beside more
	// GPUs, with two fifths requests get devices that they fit badly.
	starvedPart = 5
	// unfilledPart weighs unfilled GPU against lost GPU, which weighs starvedPart: two thirds of the sum. With less, holes
	// of sizes that arrive stay open and the CPU of a host goes before its GPUs; with all, whole nodes that rare pods need
	// are spent on small ones.
	unfilledPart = 7
	// step is the milli-GPU within which losses tie. 20 to 60 gave the same within 0.1 point of allocation.
	step = 80
)

// floorDiv divides and rounds down, for b above zero.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
