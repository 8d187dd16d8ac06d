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
	// Arrivals are requests a second. NaN is unknown.
	Arrivals float64
	// Latency is the measured time within which a part Quantile of the requests was answered, 0 for unknown.
	Latency  time.Duration
	Quantile float64
}

// Slowdown returns how many times slower than declared a replica seems to be: the number with which its prediction is what was
// measured, from 0.25 to 16. It tells what neighbours, another driver or a wrong declaration do. ok is false where the measurement
// says nothing: without arrivals or a latency. A replica that is so slow that a queue grows without end is taken to be just overloaded.
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
	return low, true
}

// VariantMemory is what Decide remembers of a variant.
type VariantMemory struct {
	// Slow is the learned slowdown, as a logarithm.
	Slow Level `json:"slow"`
	// Fast is the slowdown by which the requests are divided: it follows each window, since parts can be taken back at once. 0 is for Slow.
	Fast float64 `json:"fast,omitempty"`
	// Apart is since when Fast has been far above Slow, in seconds since 1970, 0 for not.
	Apart int64 `json:"apart,omitempty"`
	// Ready is the number of replicas in the last window, at a time in seconds since 1970, and Latency what was measured.
	Ready   int           `json:"ready,omitempty"`
	Window  int64         `json:"window,omitempty"`
	Latency time.Duration `json:"latency,omitempty"`
	// FullFrom and FullTo are the last span of time in which its replicas had as many requests as they can serve, or more.
	FullFrom int64 `json:"fullFrom,omitempty"`
	FullTo   int64 `json:"fullTo,omitempty"`
	// Queue is how many requests wait at each of the replicas that were there during an overload, at the time At.
	Queue float64 `json:"queue,omitempty"`
	At    int64   `json:"at,omitempty"`
	// Until is when a slowdown that was just learned has shown in a measurement: nothing more is learned before.
	Until int64 `json:"until,omitempty"`
}

const (
	// full is the part of its rate from which on a replica is taken to build up a queue.
	full = .9
	// mostDrains bounds for how long after an overload latencies are taken to be those of its queue. Most servers and clients have given up
	// such old requests.
	mostDrains = 5 * time.Minute
	// leastFall is how many seconds a second a latency falls that is of a queue which drains.
	leastFall = .25
	// mostQueue bounds the queue, in the time that it takes a replica to serve it.
	mostQueue = 30 * time.Minute
	// mostStep is how many times slower than known a variant becomes at once, by what several windows say.
	mostStep = 1.25
	// fastWorse and fastBetter are the parts that one window has in Fast. A variant that got slower loses traffic within two windows, and one
	// that was measured well by chance does not get more than it can serve.
	fastWorse, fastBetter = .7, .1
	// fastApart is how far Fast must be above the learned slowdown to count: less is noise, by which the parts would change at each decision.
	// farApart is how far for sizes to count on the other variants.
	fastApart, farApart = 1.25, 1.5
	// usualNoise is the deviation of the logarithm of a slowdown, and leastNoise the least that is believed. firstWeight is how many windows
	// what was declared counts for.
	usualNoise, leastNoise, firstWeight = .15, .05, 8
)

// Learn returns a memory of a variant that was learned to be slower, by an earlier process for example.
func Learn(slowdown float64) *VariantMemory {
	return &VariantMemory{Slow: Level{Mean: math.Log(slowdown), Count: recalled}}
}

// recalled is how many windows count for what an earlier process learned.
const recalled = 10

// slowdown returns the learned slowdown, 1 where there is none.
func (m *VariantMemory) slowdown() float64 {
	if m == nil {
		return 1
	}
	return math.Exp(m.Slow.Mean)
}

// dividesBy returns the slowdown by which the requests are divided.
func (m *VariantMemory) dividesBy() float64 {
	if known := m.slowdown(); m == nil || m.Fast < fastApart*known {
		return known
	}
	return m.Fast
}

// sizesBy returns the slowdown by which sizes are chosen. If others can serve its requests, a variant that has been far slower than learned for two
// windows counts for what it is worth now: it gets few requests or none, so that more is not learned of it.
func (m *VariantMemory) sizesBy(isAlone bool, now, window int64) float64 {
	if isAlone || m == nil || m.Apart == 0 || now-m.Apart < 2*window || m.drains(now, window) {
		return m.slowdown()
	}
	return m.dividesBy()
}

// of returns the memory of a variant.
func (m *Memory) of(name string) *VariantMemory {
	if m.Variants[name] == nil {
		m.Variants[name] = &VariantMemory{}
	}
	return m.Variants[name]
}

// learn takes in what was measured: of the variants at each window, of the fleet once a minute.
func (d *decision) learn() {
	m := d.memory
	if m.Guard == 0 {
		m.Guard = 1
	}
	d.isKnown = d.seen.Rate >= 0 && d.seen.Rate <= MaxRate && d.minute >= m.Minute
	if !d.isKnown {
		return
	}
	for i := range d.fleet.Variants {
		d.learnVariant(&d.fleet.Variants[i])
	}
	if d.minute == m.Minute {
		m.Forecast.Notice(d.seen.Rate, d.seen.At, d.window())
		return
	}
	m.Minute = d.minute
	if d.minute > m.Forecast.Last {
		_ = m.Forecast.Observe(d.seen.Rate, d.seen.At) // both conditions were just checked
	}
	d.isNew = true
	d.forgetSlowdowns()
}

// windowSeconds returns that in seconds, a minute at least: latencies are of no less.
func (d *decision) windowSeconds() int64 { return int64(max(d.window(), time.Minute).Seconds()) }

// smoothed returns over how many seconds the rates are counted. Windows that are shorter than half a minute are of pods that smooth theirs over a whole one.
func (d *decision) smoothed() float64 {
	if w := d.window(); w >= time.Minute/2 {
		return w.Seconds()
	}
	return 60
}

// window returns of how long a time a measurement is.
func (d *decision) window() time.Duration { return cmp.Or(d.seen.Window, time.Minute) }

// learnVariant takes in what was measured of a variant, once in a window, where that says how fast its replicas are. It does not where the window
// straddles a change: of how many requests came, of how many replicas served them, or where it may be of a queue that an overload has left.
func (d *decision) learnVariant(v *Variant) {
	m, now := d.memory.of(v.Name), d.seen.At.Unix()
	window := d.windowSeconds()
	m.fill(v, d.fleet.Promise.Within, now, window)
	measured, ok := v.Replica.Slowdown(v.Measured)
	if !ok || v.Ready == 0 || v.Fails {
		return
	}
	if before := d.memory.Forecast.now(); before > 0 && math.Abs(d.seen.Rate-before) > jump*before {
		return // latencies are those of several rates, and say nothing about one
	}
	m.follow(measured, now)
	if m.Window > 0 && now-m.Window < window && now >= m.Window {
		return
	}
	before := *m
	m.Window, m.Ready, m.Latency = now, v.Ready, v.Measured.Latency
	falls := before.Latency - m.Latency
	switch {
	case before.Window == 0 || differs(float64(before.Ready), float64(m.Ready), jump):
	case v.Warm < (1-jump)*float64(v.Ready):
	case m.drains(now, window) || now < m.Until:
	case m.Latency > d.fleet.Promise.Within && falls.Seconds() > leastFall*float64(now-before.Window): // a queue that nobody has seen grow
	default:
		m.learn(measured, now+d.loadMinutes()*60)
	}
}

// learn takes in a measured slowdown. One that has changed becomes no more than mostStep times what was known, and is then given time to show what
// more replicas change.
func (m *VariantMemory) learn(measured float64, until int64) {
	known := m.Slow.Mean
	if !m.Slow.Observe(math.Log(measured)) || m.Slow.Mean <= known {
		return
	}
	if m.Until = until; m.Slow.Mean > known+math.Log(mostStep) {
		m.Slow.Mean = known + math.Log(mostStep)
		m.Slow.Above = Run{Steps: float64(int(changed)<<m.Slow.Doubt) - 1} // the next step needs no new evidence, but what is measured after this one must not speak against it
	}
}

// fill follows whether the replicas of a variant have more requests than they can serve, and the queue that this leaves.
func (m *VariantMemory) fill(v *Variant, within time.Duration, now, window int64) {
	slowed := v.Replica.Slowed(m.slowdown())
	top, passed := slowed.Rate, float64(min(max(now-m.At, 0), window))
	m.At = now
	if v.Ready == 0 || !(v.Measured.Arrivals >= 0) {
		return
	}
	m.Queue = min(max(0, m.Queue+passed*(v.Measured.Arrivals-top)), top*mostQueue.Seconds())
	// With a queue, some of its requests would be among the slowest, but while it grows they are not answered yet. An overload that has lasted for long
	// without breaking the promise is none: the replicas are faster than known.
	lasts := m.FullTo >= now-window && now-m.FullFrom > int64((within+mostDrains).Seconds())
	if v.Measured.Latency > 0 && v.Measured.Latency <= within && (v.Measured.Arrivals < top || lasts) {
		m.Queue = 0
	}
	if v.Measured.Arrivals < full*top && m.Queue == 0 {
		return
	}
	if m.FullTo < now-window {
		m.FullFrom = now
	}
	m.FullTo = now
}

// drains reports whether latencies may be of a queue that an overload has left behind.
func (m *VariantMemory) drains(now, window int64) bool {
	return m.Queue > 0 || m.FullTo > 0 && m.FullTo < now && now-m.FullTo < window+min((m.FullTo-m.FullFrom)/2+window, int64(mostDrains.Seconds()))
}

// follow takes in a measurement for the division of the requests.
func (m *VariantMemory) follow(measured float64, now int64) {
	known, step := cmp.Or(m.Fast, m.slowdown()), fastBetter
	if measured > known {
		step = fastWorse
	}
	m.Fast = known + step*(measured-known)
	switch {
	case m.Fast < farApart*m.slowdown():
		m.Apart = 0
	case m.Apart == 0:
		m.Apart = now
	}
}

// differs reports whether two numbers differ by more than a part.
func differs(a, b, part float64) bool { return math.Abs(a-b) > part*max(a, b) }

// forgetSlowdowns moves what was learned of variants without requests towards what is declared. Otherwise a variant that was slow once would
// never get a replica or a request again that could show that it is not any more.
func (d *decision) forgetSlowdowns() {
	for i := range d.fleet.Variants {
		if v := &d.fleet.Variants[i]; v.isUnseen(d.seen.Rate) {
			m := d.memory.of(v.Name)
			m.Slow = Level{Mean: math.Log(1 + (m.slowdown()-1)*unseenKeeps), Noise: m.Slow.Noise}
			m.Fast = 1 + (cmp.Or(m.Fast, 1)-1)*unseenKeeps
		}
	}
}

// isUnseen reports whether a variant shows nothing of itself, although requests come at a rate: it has no replica, or others get all of them.
// One that gets its part of no requests forgets nothing, since it gets its part of the next ones. Unknown arrivals are none if it has no part.
func (v *Variant) isUnseen(rate float64) bool {
	without := v.Measured.Arrivals == 0 || v.Part == 0 && !(v.Measured.Arrivals > 0)
	return v.Wanted == 0 && v.Ready == 0 || rate > 0 && without
}

// Guarded is what Decide knows of how well its predictions keep the promise.
type Guarded struct {
	// Breaks adds up by how much windows broke the promise (a one-sided CUSUM), and Ratio is what they were of it, as a logarithm: it knows their noise.
	Breaks float64 `json:"breaks,omitempty"`
	Ratio  Level   `json:"ratio"`
	// At is the minute of the last change of the guard, and Eased says that it was to less. Pause is how many times the patience it waits for the next ease.
	At    int64 `json:"at,omitempty"`
	Eased bool  `json:"eased,omitempty"`
	Pause int   `json:"pause,omitempty"`
}

// guard asks for more capacity than predicted while measurements say that the prediction is wrong. It answers the sum of several windows, and
// then waits until the replicas that it asked for have loaded. It gives them back one step in a patience, and waits longer each time that proved wrong.
func (d *decision) guard() {
	m, g := d.memory, &d.memory.Guarded
	if !d.isNew || d.seen.Latency <= 0 && d.seen.PerToken <= 0 || d.minute < g.At+d.loadMinutes() && !g.Eased {
		return
	}
	serves := 0.0
	for i := range d.fleet.Variants {
		serves += d.fleet.Variants[i].Warm * d.plan.Variants[i].Capacity
	}
	if len(d.fleet.Classes) > 0 {
		serves = d.served()
	}
	if serves >= d.seen.Rate && !d.drain() {
		by := math.Log(d.seen.breaksBy(&d.fleet.Promise))
		g.Ratio.Observe(by)
		g.Breaks = max(0, g.Breaks+min(max(by/g.Ratio.Noise, -mostSteps), mostSteps)-guardAllows)
	}
	patience := int64(math.Ceil(d.cfg.Patience.Minutes())) << g.Pause
	switch {
	case g.Breaks >= broken && m.Guard < mostGuard:
		if g.Eased && d.minute-g.At < 2*patience {
			g.Pause = min(g.Pause+1, mostPause)
		}
		m.Guard, g.Breaks, g.At, g.Eased = min(mostGuard, m.Guard*guardGrows), 0, d.minute, false
	case m.Guard > 1 && g.Breaks == 0 && d.minute-g.At >= patience:
		m.Guard, g.At, g.Eased = max(1, m.Guard/guardGrows), d.minute, true
	}
}

// drain reports whether a variant with requests may have a queue from an overload.
func (d *decision) drain() bool {
	for i := range d.fleet.Variants {
		v := &d.fleet.Variants[i]
		if m := d.memory.Variants[v.Name]; m != nil && v.Ready > 0 && m.drains(d.seen.At.Unix(), d.windowSeconds()) {
			return true
		}
	}
	return false
}

// loadMinutes is how many minutes pass until replicas that are wanted now show in a measurement.
func (d *decision) loadMinutes() int64 {
	longest := time.Duration(0)
	for i := range d.fleet.Variants {
		longest = max(longest, d.fleet.Variants[i].Load)
	}
	return int64(math.Ceil((longest + d.cfg.Interval + d.window()).Minutes()))
}
