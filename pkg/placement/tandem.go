package placement

import (
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
)

// tandem prefers the place where the usual requests lose the least GPU, like fgd, and it looks ahead in two ways. Some free
// GPU will run out of CPU and memory on its host before requests use it: it is starved. Some will be left idle when the
// usual requests have filled the node: it is unfilled. Parts of both count as lost. So nodes with little CPU or memory
// beside their GPUs stay free for requests that need little, and holes stay of sizes that arrive.
//
// The steps of losses are 80 milli-GPU. Within a step places tie. Ties go to the device with the least left, then to
// the first node by name, which keeps pods together. See docs/decisions/0009 and 0037 for the alternatives and their
// results.
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
	// typicalOfTandem is the part of the pods, in percent, whose requests count. With 95 clusters that are 80 percent full
	// refuse openb's rare pods of 8 GPUs; more costs time.
	typicalOfTandem = 99
	// demandOfTandem is the part of all demand, in percent, that these requests must make up; where they make up less,
	// all requests count. With 0 a cluster whose largest 3 % of the pods request half of the GPUs keeps no GPUs for
	// those pods: it filled to 41 % where 49 % fit (docs/decisions/0009).
	demandOfTandem = 90
	// starvedPart is the divisor of starved GPU: a fifth of it counts as lost. Half or all of it gave the same on made-up
	// fills, beside unfilled GPU; without that a tenth and two fifths are worse on openb (docs/decisions/0009).
	starvedPart = 5
	// unfilledPart weighs unfilled GPU against lost GPU, which weighs starvedPart. With less, holes of sizes that do not
	// arrive stay open and the CPU of a host goes before its GPUs; with 20, whole nodes that rare pods need are spent on
	// small ones.
	unfilledPart = 7
	// step is the milli-GPU within which losses tie. 40 to 80 gave the same within 0.03 point of allocation.
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
