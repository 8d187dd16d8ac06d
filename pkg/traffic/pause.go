package traffic

import "time"

// Afresh returns what a fleet goes on with when a user has held its sizes and holds them no longer: which requests arrive, and how slow its variants
// were known to be. As after a restart of the controller, no replica leaves before the patience is over, and the guard has no steps. Sizes that
// somebody else chose say little about those that Decide would have chosen.
func (m *Memory) Afresh() *Memory {
	known := m.clone()
	out := &Memory{Forecast: known.Forecast, Classes: known.Classes, Variants: map[string]*VariantMemory{}, Minute: m.Minute}
	for name, v := range m.Variants {
		out.Variants[name] = Learn(v.slowdown())
	}
	return out
}

// pause returns a plan that leaves all as it is, with the demand and what the replicas serve. Nothing is needed later: it could not come.
func (d *decision) pause() *Plan {
	d.blendClasses()
	d.learn()
	d.learnClasses()
	d.measure()
	d.measureClasses()
	d.plan.Reason, d.plan.Best = Paused, 0
	if !d.isKnown {
		return &d.plan
	}
	longest, replicas := time.Duration(0), make([]int, len(d.fleet.Variants))
	for i := range d.fleet.Variants {
		longest, replicas[i] = max(longest, d.fleet.Variants[i].Load), d.fleet.Variants[i].Wanted
		d.plan.Capacity += float64(replicas[i]) * d.plan.Variants[i].Capacity
	}
	demand := d.demand(longest + d.cfg.Interval)
	if d.plan.Demand = sumOf(demand); len(d.fleet.Classes) > 0 {
		d.plan.Capacity = d.capacity(demand)
	}
	return &d.plan
}

// afterPause returns what to remember of a decision on a paused fleet: of what was known before, what arrives alone has become more.
func (d *decision) afterPause(before *Memory) *Memory {
	out := d.memory.Afresh()
	out.Variants = before.Afresh().Variants
	return out
}
