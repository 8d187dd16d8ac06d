package traffic

import "math"

// split divides the requests over the replicas that serve and stay.
func (d *decision) split() {
	pools, capacity := make([]Pool, len(d.fleet.Variants)), 0.0
	for i := range pools {
		v := &d.fleet.Variants[i]
		pools[i].Replica = d.dividing[i]
		if v.Ready > 0 && !v.Fails {
			pools[i].Replicas, pools[i].Capacity = d.serving(i), d.divides[i]
			capacity += pools[i].Replicas * pools[i].Capacity
		}
	}
	if !d.isKnown {
		d.holdParts(pools)
		return
	}
	// The parts hold until the next decision: a pool that gets all that it serves now would get too much a moment later. But only requests
	// that have arrived send others to pools that are too slow for the promise. If nothing arrives, the division for a little is right for
	// the first requests.
	demand := max(d.seen.Rate, min(d.memory.Forecast.Highest(d.cfg.Interval), capacity), leastDemand)
	parts := Split(pools, demand, d.fleet.Objective, d.fleet.Promise.Quantile)
	if parts == nil {
		d.setParts(make([]float64, len(pools)))
		return
	}
	d.setParts(d.limited(parts, pools))
}

// serving returns how many ready replicas of a variant serve and stay. One that is still cold counts for a part.
func (d *decision) serving(i int) float64 {
	v := &d.fleet.Variants[i]
	if v.Ready == 0 || v.Fails {
		return 0
	}
	stays := float64(min(v.Ready, d.plan.Variants[i].Replicas)) / float64(v.Ready)
	return min(v.Warm, float64(v.Ready)) * stays
}

// leastDemand is the rate in requests a second from which on requests are divided by what arrives.
const leastDemand = 1e-3

// holdParts keeps the parts that variants have, but for those that serve nothing.
func (d *decision) holdParts(pools []Pool) {
	parts := make([]float64, len(pools))
	for i := range pools {
		if pools[i].Replicas > 0 {
			parts[i] = d.fleet.Variants[i].Part
		}
	}
	d.setParts(parts)
}

// limited returns the division on the way from the present one to the wanted one: no part changes by more than the bound, unless that
// overloads a variant or leaves requests with one that does not serve.
func (d *decision) limited(wanted []float64, pools []Pool) []float64 {
	sum, present := 0.0, 0.0
	for i := range wanted {
		sum += wanted[i]
		present += d.fleet.Variants[i].Part
	}
	step := 1.0
	for i := range wanted {
		v := &d.fleet.Variants[i]
		if change := math.Abs(wanted[i]/sum - v.Part); change > d.cfg.Shift {
			step = min(step, d.cfg.Shift/change)
		}
		if present < .99 || v.Part > 0 && (pools[i].Replicas == 0 || v.Part*d.seen.Rate > pools[i].Replicas*d.divides[i]) {
			return wanted
		}
	}
	parts := make([]float64, len(wanted))
	for i := range parts {
		was := d.fleet.Variants[i].Part
		parts[i] = was + step*(wanted[i]/sum-was)
	}
	return parts
}

// setParts sets the parts so that their sum is 1, or all to 0.
func (d *decision) setParts(parts []float64) {
	sum := 0.0
	for _, p := range parts {
		sum += p
	}
	for i, p := range parts {
		if d.plan.Variants[i].Part = 0; sum > 0 {
			d.plan.Variants[i].Part = p / sum
		}
	}
}
