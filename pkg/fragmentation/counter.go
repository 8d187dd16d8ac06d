package fragmentation

import (
	"cmp"
	"maps"
	"slices"
)

// StepsPerHalfLife is how often a Counter's weights step down while they halve: a pod counts 2^(−age/half-life), with the
// age in whole steps.
const StepsPerHalfLife = 8

// maxHalfLives is the number of half-lives after which a pod no longer counts: its weight is one millionth then. A
// larger number keeps pods for longer that hardly count.
const maxHalfLives = 20

// stepWeights are the weights of a pod by its age: 2^20 · 2^(−i/8), rounded. Eight values and a shift give all of them,
// so that a Mix is the same on every machine.
var stepWeights = [StepsPerHalfLife]int64{1048576, 961548, 881744, 808563, 741455, 679917, 623487, 571740}

// maxOwned bounds the kinds that a Counter keeps of one owner, and maxKnown those of all owners, so that pods that all
// differ do not fill the memory. One owner of such pods cannot displace the kinds of others; four owners do. Larger
// bounds take more memory.
const (
	maxOwned = 4 * MaxKinds
	maxKnown = 4 * maxOwned
)

// leastBound is the weight that an owner may always have, even if all others together weigh less: 64 new pods. A larger
// value bounds an owner less in small clusters. A smaller one lets an owner of a few pods count for more beside one of
// many.
const leastBound = 64 << 20

// Counter learns a Mix from the pods that arrive. Each pod has an owner, its namespace, and no owner weighs more than
// all others together. So an owner that creates and deletes pods without end does not decide what is usual for all. The
// order of the pods does not matter, up to 16,384 kinds of one owner and 65,536 of all. Beyond that it ignores further
// kinds until it has dropped others. The zero value is empty. Concurrent use is not safe.
type Counter struct {
	// arrived counts pods by owner, by kind without weight, and by the step of their arrival.
	arrived map[string]map[Kind]map[int64]int64
	// known is the number of kinds of all owners.
	known int
}

// Observe counts a pod of an owner and of a kind that arrived in a step: time divided by an eighth of the half-life.
// The kind's Weight does not matter.
func (c *Counter) Observe(owner string, k Kind, step int64) {
	k.Weight = 0
	kinds := c.arrived[owner]
	if kinds[k] == nil {
		if c.known >= maxKnown || len(kinds) >= maxOwned {
			return
		}
		if c.arrived == nil {
			c.arrived = map[string]map[Kind]map[int64]int64{}
		}
		if kinds == nil {
			kinds = map[Kind]map[int64]int64{}
			c.arrived[owner] = kinds
		}
		kinds[k] = map[int64]int64{}
		c.known++
	}
	kinds[k][step]++
}

// Mix returns the mix of the pods as seen from a step, and drops those that no longer count. Pods of later steps count
// like those of the present. Beyond MaxKinds it leaves out the rarest.
func (c *Counter) Mix(now int64) (*Mix, error) {
	c.forget(now)
	sum := map[Kind]int64{}
	for _, kinds := range c.bounded(now) {
		for _, k := range kinds {
			weight := k.Weight
			k.Weight = 0
			sum[k] += weight
		}
	}
	kinds := make([]Kind, 0, len(sum))
	for k, weight := range sum {
		k.Weight = weight
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b Kind) int { return cmp.Or(cmp.Compare(b.Weight, a.Weight), a.compare(&b)) })
	kinds = kinds[:min(len(kinds), MaxKinds)]
	halveWeights(kinds)
	return NewMix(kinds)
}

// forget drops the pods that no longer count, to save memory.
func (c *Counter) forget(now int64) {
	for owner, kinds := range c.arrived {
		for k, counts := range kinds {
			maps.DeleteFunc(counts, func(step, _ int64) bool { return now-step >= maxHalfLives*StepsPerHalfLife })
			if len(counts) == 0 {
				delete(kinds, k)
				c.known--
			}
		}
		if len(kinds) == 0 {
			delete(c.arrived, owner)
		}
	}
}

// bounded returns the kinds of each owner with their weights. If one owner weighs more than all others together,
// bounded scales its kinds down in proportion. Pods without GPUs are neither counted nor bounded here. Example: of
// owners that weigh 900 and 100 pods, the pods of the first count a ninth each.
func (c *Counter) bounded(now int64) [][]Kind {
	owners := make([][]Kind, 0, len(c.arrived))
	weights := make([]int64, 0, len(c.arrived))
	total := int64(0)
	for _, known := range c.arrived {
		kinds, weight := weigh(known, now)
		owners, weights = append(owners, kinds), append(weights, weight)
		total += weight
	}
	for i, weight := range weights {
		// At most one owner weighs more than half of all.
		if others := total - weight; others > 0 {
			scaleDown(owners[i], weight, max(leastBound, others))
		}
	}
	return owners
}

// weigh returns the kinds with their weights and the sum of those with GPUs.
func weigh(known map[Kind]map[int64]int64, now int64) (kinds []Kind, sum int64) {
	for k, counts := range known {
		for step, n := range counts {
			age := max(0, now-step)
			k.Weight += n * (stepWeights[age%StepsPerHalfLife] >> (age / StepsPerHalfLife))
		}
		if k.Weight == 0 {
			continue
		}
		kinds = append(kinds, k)
		if k.Slots > 0 {
			sum += k.Weight
		}
	}
	return kinds, sum
}

// scaleDown multiplies the weights of kinds with GPUs, which add up to sum, by bound/sum where sum is larger. Every
// kind keeps a weight.
func scaleDown(kinds []Kind, sum, bound int64) {
	if sum <= bound {
		return
	}
	for sum >= 1<<31 { // this keeps the products within 63 bits; 31 bits are exact enough
		sum, bound = sum/2, bound/2
	}
	for i := range kinds {
		if k := &kinds[i]; k.Slots > 0 {
			k.Weight = max(1, k.Weight/sum*bound+k.Weight%sum*bound/sum)
		}
	}
}

// halveWeights halves the weights until they add up to what a Mix may weigh. More than some ten thousand pods need
// that.
func halveWeights(kinds []Kind) {
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
