package fragmentation

import (
	"cmp"
	"maps"
	"slices"
)

// StepsPerHalfLife is how often a Counter's weights step down while they halve: a pod counts 2^(−age/half-life), with the
// age in whole steps.
const StepsPerHalfLife = 8

// halves is the number of half-lives after which a pod does not count any more: its weight is one millionth then.
const halves = 20

// steps are the weights of a pod by its age: 2^20 · 2^(−i/8), rounded. Eight values and a shift give all of them, so that
// a Mix is the same on every machine.
var steps = [StepsPerHalfLife]int64{1048576, 961548, 881744, 808563, 741455, 679917, 623487, 571740}

// maxKnown bounds the kinds that a Counter knows at a time, so that pods that all differ do not fill the memory.
const maxKnown = 4 * MaxKinds

// Counter learns a Mix from the pods that arrive. The order in which it sees them does not matter, unless they are of
// more than 16,384 kinds: those that would be more are not counted until others are forgotten. The zero value is empty. It
// is not safe for concurrent use.
type Counter struct {
	// arrived counts pods by kind, without weight, and the step of their arrival.
	arrived map[Kind]map[int64]int64
}

// Observe counts a pod of a kind, whose Weight is ignored, that arrived in a step: time divided by an eighth of the
// half-life.
func (c *Counter) Observe(k Kind, step int64) {
	k.Weight = 0
	if c.arrived == nil {
		c.arrived = map[Kind]map[int64]int64{}
	}
	if c.arrived[k] == nil {
		if len(c.arrived) >= maxKnown {
			return
		}
		c.arrived[k] = map[int64]int64{}
	}
	c.arrived[k][step]++
}

// Mix returns the mix of the pods as seen from a step, and forgets those that do not count any more. Pods of later steps
// count like those of the present. Beyond MaxKinds it leaves out the rarest.
func (c *Counter) Mix(now int64) (*Mix, error) {
	var kinds []Kind
	for k, counts := range c.arrived {
		maps.DeleteFunc(counts, func(step, _ int64) bool { return now-step >= halves*StepsPerHalfLife })
		for step, n := range counts {
			age := max(0, now-step)
			k.Weight += n * (steps[age%StepsPerHalfLife] >> (age / StepsPerHalfLife))
		}
		if k.Weight > 0 {
			kinds = append(kinds, k)
		}
	}
	maps.DeleteFunc(c.arrived, func(_ Kind, counts map[int64]int64) bool { return len(counts) == 0 })
	slices.SortFunc(kinds, func(a, b Kind) int { return cmp.Or(cmp.Compare(b.Weight, a.Weight), a.compare(&b)) })
	kinds = kinds[:min(len(kinds), MaxKinds)]
	lighten(kinds)
	return NewMix(kinds)
}

// lighten halves the weights until they add up to what a Mix may weigh: with more than some ten thousand pods.
func lighten(kinds []Kind) {
	sum := int64(0)
	for i := range kinds {
		sum += kinds[i].Weight
	}
	for sum > MaxWeight/2 {
		sum = 0
		for i := range kinds {
			kinds[i].Weight = max(1, kinds[i].Weight/2)
			sum += kinds[i].Weight
		}
	}
}
