package mig

import (
	"cmp"
	"math"
	"slices"
)

// firstSums is how many sums the first search keeps. The first search is fast, and its result bounds the second. A
// larger number makes it slower, and the second one rarer.
const firstSums = 64

// sum returns the best sum with a mix of each model. The first search keeps the first number of sums. If it left
// something out and did not meet the bound, a second search keeps the second number, and looks for sums with fewer
// devices only.
func (p *Plan) sum(models []model, first, second int) *mix {
	best, cut := p.search(models, first, math.MaxInt)
	if cut && best.used.devices() > p.LowerBound {
		var better *mix
		if better, cut = p.search(models, second, best.used.devices()-1); better != nil {
			best = better
		}
	}
	p.Stats.Cut = p.Stats.Cut || cut
	p.Optimal = !p.Stats.Cut || best.used.devices() == p.LowerBound
	return best
}

// search adds up mixes, one model after the other. The search keeps at most the given number of leading sums, and drops
// those that must end with too many devices. The result is nil without a sum, and says whether the search left
// something out.
func (p *Plan) search(models []model, most, devices int) (best *mix, cut bool) {
	rests := make([]usage, len(models)+1) // the least usage of the models from there on
	for i := len(models) - 1; i >= 0; i-- {
		rests[i] = rests[i+1].plus(least(models[i].mixes))
	}
	sums := []mix{{}}
	for i := range models {
		var next []mix
		for f := range sums {
			for m := range models[i].mixes {
				one := sums[f].plus(&models[i].mixes[m])
				if one.used.plus(rests[i+1]).devices() <= devices {
					next = append(next, one)
				}
			}
		}
		sums = leading(next, rests[i+1], most)
		p.Stats.Sums += len(sums)
		cut = cut || len(sums) == most
	}
	for i := range sums {
		if best == nil || compareSums(&sums[i], best) < 0 {
			best = &sums[i]
		}
	}
	return best, cut
}

// compareSums orders whole sums: the fewest devices, then the fewest compute slices.
func compareSums(a, b *mix) int {
	return cmp.Or(cmp.Compare(a.used.devices(), b.used.devices()), slices.Compare(a.used[:], b.used[:]))
}

// least returns the least usage of each law over the mixes.
func least(mixes []mix) usage {
	u := mixes[0].used
	for i := range mixes {
		for l := range u {
			u[l] = min(u[l], mixes[i].used[l])
		}
	}
	return u
}

// parts is the denominator of the weights of the laws in boundOf. A larger number rarely gives a higher bound, and
// takes longer.
const parts = 8

// boundOf returns a lower bound of the devices that the models need.
//
// Each law gives a lower bound of the devices: its usage, by its room. So does every mean of the laws, and for a mean
// the least usages of the models add up. The bound is the highest of the means with weights in eighths.
func boundOf(models []model) int {
	most := 0
	for a := range parts + 1 {
		for b := range parts + 1 - a {
			for c := range parts + 1 - a - b {
				mean := [...]int{a, b, c, parts - a - b - c}
				sum := 0
				for i := range models {
					sum += models[i].leastOf(mean)
				}
				most = max(most, (sum+parts*roomLCM-1)/(parts*roomLCM))
			}
		}
	}
	return most
}

// leastOf returns the least usage of a mean of the laws by the model, in units of 1/(parts·roomLCM) of a device. The
// model's mixes give it. If these are unknown or not whole, the computation divides instances.
func (m *model) leastOf(mean [len(laws)]int) int {
	var weights [len(laws)]int
	for l := range laws {
		weights[l] = mean[l] * (roomLCM / laws[l].room)
	}
	lowest := -1
	note := func(n int) {
		if lowest < 0 || n < lowest {
			lowest = n
		}
	}
	if m.whole {
		for i := range m.mixes {
			note(weigh(m.mixes[i].used, weights))
		}
		return lowest
	}
	for _, s := range m.variants.known() {
		var one counts
		one[s] = 1
		note(ceil(m.want*Rate(weigh(one.used(), weights)), m.variants[s].Rate))
	}
	return lowest
}

func weigh(u usage, weights [len(laws)]int) int {
	sum := 0
	for l := range u {
		sum += u[l] * weights[l]
	}
	return sum
}
