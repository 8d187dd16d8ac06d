package traffic

import (
	"math"
	"time"
)

// Latency is how long requests take, from arrival to answer or to the first token of it, at a steady rate of arrivals at random times.
//
// It is a queue with several servers and general times (M/G/c). The probability to wait is Erlang's C, and the mean wait is that of
// exponential service × (1 + variation) ÷ 2 (Allen and Cunneen). Long waits end at the rate of Cramér and Lundberg, which is exact for one
// channel: the less the times vary, the rarer are long waits. The time of service has the given mean and variation: a fixed part and an
// exponential one, or two exponential ones where the variation is above 1. With one channel and a variation of 1 all of this is exact
// (M/M/1): the p99 is ln 100 ÷ (rate − arrivals).
type Latency struct {
	// fixed is the part in seconds that all requests take. gate is how long a batch holds its successors up, and busy the part of the time in
	// which there is one.
	fixed, gate, busy float64
	// phases are exponential times of service.
	phases []phase
	// waits is the probability to wait, and wait the mean of those that do.
	waits, wait float64
	// Those that wait do so for at least short, and then for an exponential time that ends at the rate drain: long waits are as rare as they
	// really are, and short ones are taken to be longer.
	short, drain float64
}

// phase is an exponential time with a probability. A rate of +Inf is no time at all.
type phase struct{ part, rate float64 }

// At returns the latency at a rate of arrivals, from 0 to below r.Rate. ok is false where the replica is overloaded.
func (r *Replica) At(arrivals float64) (l Latency, ok bool) {
	if !(arrivals >= 0 && arrivals < r.Rate) {
		return Latency{}, false
	}
	busy := arrivals / r.Rate
	l = Latency{
		gate: r.Gate.Seconds(), busy: busy,
		waits: erlangC(r.channels(), busy), wait: (1 + r.Variation) / 2 / (r.Rate - arrivals),
	}
	l.serve(r)
	l.longWaits(r, arrivals)
	if r.FirstToken > 0 {
		l.answer(r.FirstToken.Seconds() / r.Time.Seconds())
	}
	return l, true
}

// answer has requests answered after a part of their service.
func (l *Latency) answer(part float64) {
	l.fixed *= part
	for i := range l.phases {
		l.phases[i].rate /= part
	}
}

// serve sets how long service takes.
func (l *Latency) serve(r *Replica) {
	mean, variation := r.Time.Seconds(), r.Variation
	if variation <= 1 {
		m := mean * math.Sqrt(variation)
		l.fixed, l.phases = mean-m, []phase{{1, 1 / m}}
		return
	}
	p := (1 + math.Sqrt((variation-1)/(variation+1))) / 2
	l.phases = []phase{{p, 2 * p / mean}, {1 - p, 2 * (1 - p) / mean}}
}

// longWaits sets how rare long waits are. With M(x), the mean of e^(x × S) over the times S that the queue takes for a request, they end at the
// rate x > 0 at which M(x) = 1 + x ÷ arrivals. With one channel the probability to wait for longer than a long t is
// (1 − busy) ÷ (arrivals × M'(x) − 1) × e^(−x × t); with more it is taken to be as many times the probability to wait as with one. Asmussen, Applied Probability and Queues, 2003, chapters IX and XIII.
func (l *Latency) longWaits(r *Replica, arrivals float64) {
	if l.drain = 1 / l.wait; l.waits == 0 || r.Variation == 1 {
		return
	}
	scale := r.Rate * r.Time.Seconds() // the queue takes Rate requests a second
	low, high := 0.0, math.Inf(1)
	for _, p := range l.phases {
		high = min(high, p.rate*scale)
	}
	x := min(l.drain, high/2)
	for range 60 { // Newton's method within bounds
		above := l.moment(x/scale) - 1 - x/arrivals
		if above < 0 {
			low = x
		} else {
			high = x
		}
		next := min(x-above/(l.slope(x/scale)/scale-1/arrivals), 2*x) // near the least value, the slope says nothing
		if !(next > low && next < high) {
			next = min(2*x, (low+high)/2)
		}
		if math.Abs(next-x) <= 1e-12*x {
			break
		}
		x = next
	}
	l.drain = x
	long := (1 - l.busy) / (arrivals*l.slope(x/scale)/scale - 1) / l.busy
	if long > 1 && !math.IsInf(long, 1) { // else times vary much, or so few arrive that the numbers have no digits left
		l.short = math.Log(long) / x
	}
}

// moment returns the mean of e^(x × S) over the times S of service.
func (l *Latency) moment(x float64) (sum float64) {
	for _, p := range l.phases {
		sum += p.part / (1 - x/p.rate)
	}
	return math.Exp(x*l.fixed) * sum
}

// slope returns the derivative of moment.
func (l *Latency) slope(x float64) (sum float64) {
	for _, p := range l.phases {
		sum += p.part / (1 - x/p.rate) * (l.fixed + 1/(p.rate-x))
	}
	return math.Exp(x*l.fixed) * sum
}

// erlangC returns the probability that a request waits for one of c channels that are busy for a part of the time. It is computed
// from Erlang's B: 1 ÷ B is the sum of c ÷ a × (c − 1) ÷ a × … for an offered load a. The terms rise at first and then fall. The sum ends with
// those that count no more, after some thousand of 4,096 channels: a decision on a fleet asks many thousand times.
func erlangC(c int, busy float64) float64 {
	a := busy * float64(c)
	sum, term, per := 1.0, 1.0, 1/a
	for left := float64(c); left > 0 && sum < noWaits && term > sum*1e-18; left-- {
		term *= left * per
		sum += term
	}
	b := 1 / sum
	return b / (1 - busy*(1-b))
}

// noWaits is one over a probability to wait that is none.
const noWaits = 1e60

// Mean returns the mean. A request that finds a batch under way waits for half of it on average.
func (l *Latency) Mean() time.Duration { return seconds(l.mean()) }

func (l *Latency) mean() float64 {
	sum := l.fixed + l.gate*l.busy/2 + l.waits*l.wait
	for _, p := range l.phases {
		sum += p.part / p.rate
	}
	return sum
}

// tail returns the probability that a request takes longer than t seconds. It counts a whole batch before a request's own, which is
// the most that it waits for: the result is too high rather than too low.
func (l *Latency) tail(t float64) float64 {
	t -= l.fixed
	if l.busy > 0 {
		t -= l.gate
	}
	if t <= 0 {
		return 1
	}
	sum := 0.0
	for _, p := range l.phases {
		sum += p.part * ((1-l.waits)*math.Exp(-p.rate*t) + l.waits*sumTail(p.rate, l.drain, t-l.short))
	}
	return sum
}

// sumTail returns the probability that two exponential times together take longer than t.
func sumTail(a, b, t float64) float64 {
	if t <= 0 {
		return 1
	}
	a, b = min(a, b), max(a, b)
	if math.IsInf(b, 1) {
		return math.Exp(-a * t)
	}
	x, phi := (b-a)*t, 1.0
	if x > 0 {
		phi = -math.Expm1(-x) / x
	}
	return math.Exp(-a*t) * (1 + a*t*phi)
}

// Quantile returns the time within which a part q of the requests is answered, from 0 to below 1.
func (l *Latency) Quantile(q float64) time.Duration { return seconds(l.quantile(q)) }

func (l *Latency) quantile(q float64) float64 {
	low, high := 0.0, max(l.mean(), 1e-9)
	for l.tail(high) > 1-q {
		low, high = high, 2*high
	}
	for range 60 {
		if mid := (low + high) / 2; l.tail(mid) > 1-q {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), float64(math.MaxInt64/2)))
}
