package traffic

import "time"

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
