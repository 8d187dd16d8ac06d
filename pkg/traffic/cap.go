package traffic

import (
	"cmp"
	"slices"
)

// Left is how much more than now a fleet may have, since all fleets share a cap, in thousandths of a GPU.
type Left struct {
	// Now bounds the replicas that come now; Later bounds those with all that the needs to come add, as far as earlier fleets leave some.
	Now, Later int64
}

// limit takes replicas off a plan that what is left does not allow, and off the needs to come. Replicas that are there stay: a cap that was lowered takes
// nothing away. Those that serve the most for what they take come first.
func (d *decision) limit() {
	left := d.cfg.Left
	if left == nil {
		return
	}
	now, planned := make([]int, len(d.plan.Variants)), make([]int, len(d.plan.Variants))
	for i := range now {
		now[i], planned[i] = d.fleet.Variants[i].Wanted, d.plan.Variants[i].Replicas
	}
	if d.fit(now, planned, left.Now) {
		d.take(planned)
		if d.plan.Reason = Capped; len(d.fleet.Classes) > 0 {
			d.plan.Capacity = d.capacity(d.demand(d.horizon()))
		}
	}
	later := left.Later - d.fleet.Takes(now, planned)
	for k := range d.plan.Later {
		d.fit(planned, d.plan.Later[k].Replicas, later)
	}
}

// fit has numbers grow from others by no more than what is left, and reports whether that takes some off.
func (d *decision) fit(from, to []int, left int64) (isLess bool) {
	order := make([]int, len(to))
	for i := range order {
		order[i] = i
	}
	serves := func(i int) float64 { return d.plan.Variants[i].Capacity / float64(max(1, d.fleet.Variants[i].Worth)) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(serves(b), serves(a)) })
	for _, i := range order {
		more, worth := max(0, to[i]-from[i]), d.fleet.Variants[i].Worth
		if worth > 0 && int64(more) > max(0, left)/worth {
			to[i], isLess = from[i]+int(max(0, left)/worth), true
			more = to[i] - from[i]
		}
		left -= int64(more) * worth
	}
	return isLess
}

// Takes returns how much replicas take beyond others, in thousandths of a GPU. Replicas that leave count for nothing: they are there until they have
// left.
func (f *Fleet) Takes(from, to []int) (sum int64) {
	for i := range to {
		sum += int64(max(0, to[i]-from[i])) * f.Variants[i].Worth
	}
	return sum
}
