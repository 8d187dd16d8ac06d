package traffic

import "math"

// MinuteDemand is the highest rate that sizes were wanted for in a minute since 1970.
type MinuteDemand struct {
	Minute int64   `json:"minute"`
	Rate   float64 `json:"rate"`
	// Classes are the highest rates of each class.
	Classes map[string]float64 `json:"classes,omitempty"`
	// Worth is what one replica of each variant served together, by what was known then: a rate took more replicas where they served less.
	Worth float64 `json:"worth"`
}

// Sizes are the last changes of the sizes of a fleet, and what they showed. Rates are in what replicas serve as declared: when they turn out to be
// faster or slower, another rate is the same load.
type Sizes struct {
	// Grown is when the fleet last grew for its demand, in seconds since 1970, 0 for never.
	Grown int64 `json:"grown,omitempty"`
	// Shrunk is the demand for which fewer replicas were to be enough when it last shrank, 0 where it has grown since.
	Shrunk float64 `json:"shrunk,omitempty"`
	// Short is what replicas serve that were too few for a demand of For, as a shrink showed that was taken back at a time in seconds since 1970.
	Short float64 `json:"short,omitempty"`
	For   float64 `json:"for,omitempty"`
	At    int64   `json:"at,omitempty"`
}

const (
	// leastSaving is the part of the cost that a swap for cheaper replicas must save: these must load, and both run meanwhile.
	leastSaving = .05
	// swapFor is the factor by which a swap is planned for more than the highest demand of the patience: else a little noise would take the
	// new replicas away again when they have just loaded.
	swapFor = 1.05
	// mostLeaves is the part of its replicas that a variant loses in one decision, one at least.
	mostLeaves = .2
	// spare is the part of the demand that replicas must be able to serve beyond it for others to leave, but no more than spareReplica of one.
	// Without it, noise has the same replica leave and come again.
	spare, spareReplica = .05, .5
	// alike is the part by which two demands may differ to be one, with its noise. shortLasts is for how long a size that was too small
	// for a demand is not tried again for it.
	alike, shortLasts = .15, 24 * 3600
	// aboveShort is by which part more than that must be served: less than a replica, and more than a sum of many is off.
	aboveShort = 1e-6
)

// remember takes in the demand, and returns the highest one of the patience: of each class, or of all requests.
func (d *decision) remember(demand []float64) (highest []float64) {
	m, now := d.memory, MinuteDemand{Minute: d.minute, Rate: d.plan.Demand, Classes: d.byClass(demand)}
	for i := range d.plan.Variants {
		now.Worth += d.plan.Variants[i].Capacity
	}
	if n := len(m.Demands); n > 0 && m.Demands[n-1].Minute == d.minute {
		m.Demands[n-1] = now.highest(&m.Demands[n-1])
	} else {
		m.Demands = append(m.Demands, now)
	}
	oldest := d.minute - int64(math.Ceil(d.cfg.Patience.Minutes()))
	for len(m.Demands) > 0 && m.Demands[0].Minute < oldest {
		m.Demands = m.Demands[1:]
	}
	for _, x := range m.Demands {
		now = now.highest(&x)
	}
	if len(d.fleet.Classes) == 0 {
		return []float64{now.Rate}
	}
	for k := range d.fleet.Classes {
		highest = append(highest, now.Classes[d.fleet.Classes[k].Name])
	}
	return highest
}

// shrink takes replicas away that the highest demand of the patience does not need, with some to spare, or swaps them for cheaper ones: those load first.
func (d *decision) shrink(now Choice, lasting []float64) {
	lasting = d.withSpare(lasting, &now)
	ideal := d.cheapest(false, lasting)
	if adds(&ideal, &now) {
		more := make([]float64, len(lasting))
		for k, r := range lasting {
			more[k] = swapFor * r
		}
		ideal = d.cheapest(false, more)
	}
	d.take(now.Replicas)
	d.plan.Reason = Steady
	if ideal.Cost >= now.Cost || ideal.Capacity < sumOf(lasting) || !d.lasts() {
		return
	}
	target, loading := make([]int, len(now.Replicas)), false
	for i, n := range ideal.Replicas {
		target[i] = max(n, now.Replicas[i])
		loading = loading || d.fleet.Variants[i].Ready < n
	}
	switch {
	case loading && float64(ideal.Cost) > (1-leastSaving)*float64(now.Cost):
		return
	case !loading:
		for i, n := range ideal.Replicas {
			most := max(1, int(mostLeaves*float64(now.Replicas[i])))
			target[i] = max(n, now.Replicas[i]-most)
		}
	}
	d.take(target)
	if d.plan.Reason = Shrinks; loading {
		d.plan.Reason = Cheaper
		return
	}
	if _, by := d.declared(&now); by > 0 {
		d.memory.Sizes.Shrunk = sumOf(lasting) / by
	}
}

// grew notes a growth for the demand. If it takes back a shrink, and the load is what it was then, the size in between is too small for it.
func (d *decision) grew(now *Choice) {
	s := &d.memory.Sizes
	serves, by := d.declared(now)
	if s.Grown = d.seen.At.Unix(); by > 0 && d.plan.Demand/by < (1+alike)*s.Shrunk {
		s.Short, s.For, s.At = serves, d.plan.Demand/by, s.Grown
	}
	s.Shrunk = 0
}

// declared returns what replicas serve as declared, and the part of it that is their capacity.
func (d *decision) declared(now *Choice) (serves, by float64) {
	for i, n := range now.Replicas {
		serves += float64(n) * d.fleet.Variants[i].Replica.top()
	}
	if serves > 0 {
		by = now.Capacity / serves
	}
	return serves, by
}

// withSpare returns a demand with what must be spare for replicas to leave. It is above what a size serves that was too small for such a demand.
func (d *decision) withSpare(demand []float64, now *Choice) []float64 {
	replica := 0.0
	for i := range d.plan.Variants {
		if s := &d.plan.Variants[i]; d.fleet.Variants[i].Wanted > 0 && s.Capacity > 0 && (replica == 0 || s.Capacity < replica) {
			replica = s.Capacity
		}
	}
	sum, s := sumOf(demand), &d.memory.Sizes
	if sum <= 0 {
		return demand
	}
	more := min(spare*sum, spareReplica*replica)
	if _, by := d.declared(now); sum > (1-alike)*s.For*by && d.seen.At.Unix()-s.At < shortLasts {
		more = max(more, s.Short*by*(1+aboveShort)-sum)
	}
	out := make([]float64, len(demand))
	for k, r := range demand {
		out[k] = r * (1 + more/sum)
	}
	return out
}

// adds reports whether a choice has more replicas of a variant than now.
func adds(choice, now *Choice) bool {
	for i, n := range choice.Replicas {
		if n > now.Replicas[i] {
			return true
		}
	}
	return false
}

// lasts reports whether demands are known for the patience, and the fleet has not grown in it.
func (d *decision) lasts() bool {
	patience := d.cfg.Patience
	return d.minute-d.memory.Demands[0].Minute >= int64(patience.Minutes()) && d.seen.At.Unix()-d.memory.Sizes.Grown >= int64(patience.Seconds())
}
