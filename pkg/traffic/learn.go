package traffic

import (
	"cmp"
	"math"
	"time"
)

// Bounds of what is learned. More is taken for a broken measurement, or for a variant that is down.
const (
	leastSlowdown = .25
	mostSlowdown  = 16
)

// Measured is what a variant did in a span of time, for each of its replicas on average.
type Measured struct {
	// Arrivals and Completions are requests a second. NaN is unknown.
	Arrivals, Completions float64
	// Latency is the measured time within which a part Quantile of the requests was answered, 0 for unknown.
	Latency  time.Duration
	Quantile float64
}

// Slowdown returns how many times slower than declared a replica seems to be: the number with which its prediction is what was
// measured, from .25 to 16. It tells what neighbours, another driver or a wrong declaration do. ok is false where the measurement
// says nothing: without arrivals or a latency.
//
// Where a replica completes clearly fewer requests than arrive, it is overloaded: its slowdown is at least Rate ÷ Completions.
func (r *Replica) Slowdown(m Measured) (slowdown float64, ok bool) {
	if !(m.Arrivals > 0) || m.Latency <= 0 {
		return 0, false
	}
	longer := func(by float64) bool {
		slowed := r.Slowed(by)
		l, ok := slowed.At(m.Arrivals)
		return !ok || l.tail(m.Latency.Seconds()) > 1-m.Quantile
	}
	low, high := leastSlowdown, float64(mostSlowdown)
	for range 30 {
		if mid := (low + high) / 2; longer(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	if m.Completions > 0 && m.Completions < m.Arrivals*overloaded {
		low = max(low, min(r.Rate/m.Completions, mostSlowdown))
	}
	return low, true
}

// overloaded is the part of the arrivals below which completions show an overload, and not just noise.
const overloaded = .95

// learnSlowdown moves what is known towards a new measurement: at once most of the way where it is worse, slowly where it is better.
// A variant that got slower loses traffic within two measurements, and one that was measured well by chance does not get more than it
// can serve.
func learnSlowdown(known, measured float64) float64 {
	step := .1
	if measured > known {
		step = .7
	}
	return known + step*(measured-known)
}

// learn takes in what was measured: of the variants at each decision, of the fleet once a minute.
func (d *decision) learn() {
	m := d.memory
	if m.Guard == 0 {
		m.Guard = 1
	}
	d.isKnown = d.seen.Rate >= 0 && d.seen.Rate <= MaxRate && d.minute >= m.Minute
	if !d.isKnown {
		return
	}
	d.learnSlowdowns()
	if d.minute == m.Minute {
		m.Forecast.Notice(d.seen.Rate, d.seen.At, cmp.Or(d.seen.Window, time.Minute))
		return
	}
	m.Minute = d.minute
	if d.minute > m.Forecast.Last {
		_ = m.Forecast.Observe(d.seen.Rate, d.seen.At) // both conditions were just checked
	}
	d.isNew = true
	d.forgetSlowdowns()
}

// forgetSlowdowns moves what was learned of variants without requests towards what is declared. Otherwise a variant that was slow once would
// never get a replica or a request again that could show that it is not any more.
func (d *decision) forgetSlowdowns() {
	for i := range d.fleet.Variants {
		v := &d.fleet.Variants[i]
		if s, learned := d.memory.Slowdowns[v.Name]; learned && v.isUnseen(d.seen.Rate) {
			d.memory.Slowdowns[v.Name] = 1 + (s-1)*unseenKeeps
		}
	}
}

// isUnseen reports whether a variant shows nothing of itself, although requests come at a rate: it has no replica, or others get all of them.
// One that gets its part of no requests forgets nothing, since it gets its part of the next ones. Unknown arrivals are none if it has no part.
func (v *Variant) isUnseen(rate float64) bool {
	without := v.Measured.Arrivals == 0 || v.Part == 0 && !(v.Measured.Arrivals > 0)
	return v.Wanted == 0 && v.Ready == 0 || rate > 0 && without
}

// guard asks for more capacity than predicted while measurements say that the prediction is wrong.
func (d *decision) guard() {
	if !d.isNew || d.seen.Latency <= 0 && d.seen.PerToken <= 0 {
		return
	}
	serves := 0.0
	for i := range d.fleet.Variants {
		serves += d.fleet.Variants[i].Warm * d.plan.Variants[i].Capacity
	}
	if len(d.fleet.Classes) > 0 {
		serves = d.served()
	}
	if m := d.memory; d.seen.breaks(&d.fleet.Promise) && serves >= d.seen.Rate {
		m.Guard = min(mostGuard, m.Guard*guardGrows)
	} else {
		m.Guard = max(1, m.Guard*guardEases)
	}
}

// learnSlowdowns takes in what was measured of the variants, but not while the rate jumps: then latencies are those of several rates, and say
// nothing about one.
func (d *decision) learnSlowdowns() {
	before := d.memory.Forecast.now()
	if before > 0 && math.Abs(d.seen.Rate-before) > jump*before {
		return
	}
	for i := range d.fleet.Variants {
		v := &d.fleet.Variants[i]
		measured, ok := v.Replica.Slowdown(v.Measured)
		if !ok || v.Ready == 0 || v.Fails {
			continue
		}
		known, has := d.memory.Slowdowns[v.Name]
		if !has {
			known = 1
		}
		d.memory.Slowdowns[v.Name] = learnSlowdown(known, measured)
	}
}
