package traffic

import (
	"cmp"
	"maps"
	"math"
	"time"
)

// blendClasses has the replicas of the variants be those of the mix of classes that each gets now. The measurements of a variant are of that
// mix.
func (d *decision) blendClasses() {
	if len(d.fleet.Classes) == 0 {
		return
	}
	f := *d.fleet
	f.Variants = append([]Variant(nil), f.Variants...)
	for i := range f.Variants {
		replicas, weights := make([]Replica, len(f.Classes)), make([]float64, len(f.Classes))
		for k := range f.Classes {
			c := &f.Classes[k]
			if replicas[k] = c.Replicas[i]; replicas[k].Rate > 0 && c.Rate >= 0 {
				weights[k] = c.Rate * c.Parts[i]
			}
		}
		if sumOf(weights) >= leastDemand {
			f.Variants[i].Replica = blend(replicas, weights)
		}
	}
	for k := range f.Classes {
		if r := f.Classes[k].Rate; !(r >= 0 && r <= MaxRate) {
			d.seen.Rate = math.NaN() // without the mix, it is unknown what arrives
		}
	}
	d.fleet = &f
}

// learnClasses takes in the rate of each class, once a minute, and forgets classes that the fleet no longer has.
func (d *decision) learnClasses() {
	there := map[string]bool{}
	for k := range d.fleet.Classes {
		c := &d.fleet.Classes[k]
		there[c.Name] = true
		f := d.memory.Classes[c.Name]
		if f == nil {
			f = &Forecast{}
			d.memory.Classes[c.Name] = f
		}
		switch f.Misses, f.Window = d.cfg.Misses, d.smoothed(); {
		case !d.isKnown:
		case d.minute > f.Last:
			_ = f.Observe(c.Rate, d.seen.At) // both conditions were just checked
		default:
			f.Notice(c.Rate, d.seen.At, cmp.Or(d.seen.Window, time.Minute))
		}
	}
	maps.DeleteFunc(d.memory.Classes, func(name string, _ *Forecast) bool { return !there[name] })
}

// measureClasses says what requests of each class ask of the replicas of each variant as it was learned.
func (d *decision) measureClasses() {
	if len(d.fleet.Classes) == 0 {
		return
	}
	usable := make([]bool, len(d.fleet.Variants))
	for i := range usable {
		usable[i] = !d.fleet.Variants[i].Fails && d.fleet.Variants[i].Most > 0
	}
	slowdowns := make([]float64, len(usable))
	for i := range slowdowns {
		slowdowns[i] = d.plan.Variants[i].Slowdown
	}
	d.loads, d.plan.Best = d.loadsOf(usable, slowdowns)
	for i := range d.plan.Variants {
		s := &d.plan.Variants[i]
		s.Capacity = 0
		rate, load := 0.0, 0.0
		for k := range d.fleet.Classes {
			if each := d.loads[k][i]; each > 0 {
				of := max(d.memory.Classes[d.fleet.Classes[k].Name].now(), leastDemand)
				rate, load = rate+of, load+of*each
			}
		}
		if load > 0 {
			s.Capacity = rate / load
		}
	}
}

// loadsOf returns the loads on the variants that may serve, with their slowdowns.
func (d *decision) loadsOf(usable []bool, slowdowns []float64) ([][]float64, time.Duration) {
	promise := d.fleet.Promise
	promise.Within = scaled(promise.Within, sizedFor)
	replicas := make([][]Replica, len(d.fleet.Classes))
	for k := range replicas {
		replicas[k] = make([]Replica, len(usable))
		for i, r := range d.fleet.Classes[k].Replicas {
			if usable[i] && r.Rate > 0 {
				replicas[k][i] = r.Slowed(slowdowns[i])
			}
		}
	}
	return LoadsOf(replicas, promise)
}

// classDemand returns what is expected of each class until a time ahead.
func (d *decision) classDemand(ahead time.Duration) []float64 {
	demand := make([]float64, len(d.fleet.Classes))
	for k := range demand {
		demand[k] = d.memory.Classes[d.fleet.Classes[k].Name].Highest(ahead) * d.memory.Guard
	}
	return demand
}

// byClass returns the rates of the classes by their names.
func (d *decision) byClass(rates []float64) map[string]float64 {
	if len(d.fleet.Classes) == 0 {
		return nil
	}
	out := map[string]float64{}
	for k, r := range rates {
		out[d.fleet.Classes[k].Name] = r
	}
	return out
}

// highest returns the higher demands of two minutes, of the first one's minute and by the worth of its replicas.
func (x MinuteDemand) highest(y *MinuteDemand) MinuteDemand {
	as := 1.0
	if x.Worth > 0 && y.Worth > 0 {
		as = x.Worth / y.Worth
	}
	x.Rate, x.Classes = max(x.Rate, as*y.Rate), maps.Clone(x.Classes)
	for name, r := range y.Classes {
		if x.Classes == nil {
			x.Classes = map[string]float64{}
		}
		x.Classes[name] = max(x.Classes[name], as*r)
	}
	return x
}

// capacity returns how many requests a second of a mix the planned replicas serve.
func (d *decision) capacity(demand []float64) float64 {
	replicas := make([]int, len(d.plan.Variants))
	for i := range replicas {
		replicas[i] = d.plan.Variants[i].Replicas
	}
	return capacityFor(&Mix{Rates: demand, Loads: d.loads}, replicas)
}

// served returns how many requests a second of what arrives the ready replicas serve within the promise.
func (d *decision) served() float64 {
	warm, rates := make([]float64, len(d.fleet.Variants)), make([]float64, len(d.fleet.Classes))
	for i := range warm {
		warm[i] = d.fleet.Variants[i].Warm
	}
	for k := range rates {
		rates[k] = d.fleet.Classes[k].Rate
	}
	return sumOf(rates) / Assign(&Mix{Rates: rates, Loads: d.loads}, warm).Busy
}

// assign divides the requests of each class over the replicas that serve and stay.
func (d *decision) assign() {
	replicas, usable := make([]float64, len(d.fleet.Variants)), make([]bool, len(d.fleet.Variants))
	slowdowns := make([]float64, len(usable))
	for i := range replicas {
		replicas[i] = d.serving(i)
		usable[i] = replicas[i] > 0
		slowdowns[i] = d.memory.Variants[d.fleet.Variants[i].Name].dividesBy()
	}
	mix := &Mix{Rates: make([]float64, len(d.fleet.Classes))}
	mix.Loads, _ = d.loadsOf(usable, slowdowns) // a variant without a ready replica leaves its classes to the others
	for k := range mix.Rates {
		c := &d.fleet.Classes[k]
		mix.Rates[k] = max(d.memory.Classes[c.Name].Highest(d.cfg.Interval), leastDemand)
		if d.isKnown {
			mix.Rates[k] = max(mix.Rates[k], c.Rate)
		}
	}
	present := d.presentParts(mix)
	switch {
	case d.isKnown:
		d.plan.Classes = d.limitedParts(mix, replicas, present)
	default:
		d.plan.Classes = present
	}
	total := sumOf(mix.Rates)
	for i := range d.plan.Variants {
		d.plan.Variants[i].Part = 0
		for k, parts := range d.plan.Classes {
			d.plan.Variants[i].Part += mix.Rates[k] / total * parts[i]
		}
	}
}

// presentParts returns the parts that the variants have now, but for those that do not serve a class. The sum of a class is 1, or 0 where no
// variant that has a part serves it.
func (d *decision) presentParts(mix *Mix) [][]float64 {
	out := make([][]float64, len(mix.Rates))
	for k := range out {
		out[k] = make([]float64, len(d.fleet.Variants))
		for i, p := range d.fleet.Classes[k].Parts {
			if mix.Loads[k][i] > 0 {
				out[k][i] = p
			}
		}
		if sum := sumOf(out[k]); sum > 0 {
			for i := range out[k] {
				out[k][i] /= sum
			}
		}
	}
	return out
}

// limitedParts returns the division on the way from the present one to the assignment: no part of a class changes by more than the bound, unless
// the present one overloads a variant, or leaves requests with one that does not serve them.
func (d *decision) limitedParts(mix *Mix, replicas []float64, present [][]float64) [][]float64 {
	wanted, step := Assign(mix, replicas).Parts, 1.0
	for i, n := range replicas {
		if loadOf(mix, present, i) > n {
			return wanted
		}
	}
	for k := range wanted {
		for i := range wanted[k] {
			if sumOf(wanted[k]) > 0 && math.Abs(d.fleet.Classes[k].Parts[i]-present[k][i]) > .01 || sumOf(present[k]) < sumOf(wanted[k])/2 {
				return wanted
			}
			if change := math.Abs(wanted[k][i] - present[k][i]); change > d.cfg.Shift {
				step = min(step, d.cfg.Shift/change)
			}
		}
	}
	for k := range wanted {
		for i := range wanted[k] {
			wanted[k][i] = present[k][i] + step*(wanted[k][i]-present[k][i])
		}
	}
	return wanted
}
