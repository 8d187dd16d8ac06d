package requests

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// Fleet is what is known of a fleet, and what arrives at it.
type Fleet struct {
	Name    string
	Promise traffic.Promise
	// Replica is what one does.
	Replica traffic.Replica
	// Least and Most bound the number of replicas.
	Least, Most int
	// Load is the time from the start of a replica until it serves.
	Load time.Duration
	// Rates are the requests a second of each minute, from when the first replicas serve.
	Rates []float64
	// Fixed says that there are Most replicas all the time.
	Fixed bool
	// Every is the time between two decisions. A longer one between two calls of Size is one without replicas.
	Every time.Duration
	// Until is the time up to which Result counts answers, 0 for all.
	Until time.Duration
}

// Lasts returns the time from the start of the first replicas until the rates end.
func (f *Fleet) Lasts() time.Duration { return f.Load + time.Duration(len(f.Rates))*time.Minute }

// sizedFor is the part of the promise that a fixed size is for, as in package traffic: the rest is for the noise of a minute.
const sizedFor = .95

// ForPeak returns the least number of replicas that keep the promise at the highest rate, and false where no number up to Most does.
func (f *Fleet) ForPeak() (int, bool) {
	promise := f.Promise
	promise.Within = time.Duration(sizedFor * float64(promise.Within))
	one := f.Replica.Capacity(promise)
	for n := 1; n <= f.Most; n++ {
		if float64(n)*one >= slices.Max(f.Rates) {
			return n, true
		}
	}
	return f.Most, false
}

// Result is what came of the requests of a fleet.
type Result struct {
	// Windows of a minute, merged until they have 100 requests, and Broken those in which more than the promised part was late.
	Windows, Broken int
	// Requests that arrived, and Late those that took longer than promised. Answered are those that found a replica in time for the sum.
	Requests, Late, Answered int
}

const (
	// delay is how old metrics are when a decision sees them, and window what they cover.
	delay, window = 15., 60.
	// leastWindow is the number of requests that make a window: in fewer the promised part is no figure.
	leastWindow = 100
	// epoch is the Unix time of the start of a run: package traffic takes a time near 0 for none.
	epoch = 365 * 24 * 3600
)

// interval is what was seen between two decisions. Times are seconds.
type interval struct {
	from, to float64
	took     []float64
	serving  int
}

// Run is the requests of a fleet in one run of the simulator.
type Run struct {
	fleet  *Fleet
	random *rand.Rand
	pool   pool
	memory traffic.Memory
	wanted int
	// opened is when the first replicas serve, −1 before the first decision, now the last decision.
	opened, now float64
	// seen are the last intervals, the newest last.
	seen []interval
	// requests and late are those of the window at hand, and edge is when the minute at hand ends.
	requests, late int
	edge           float64
	result         Result
}

// New returns the requests of a fleet before the first of them. The seed draws their times.
func New(f *Fleet, seed uint64) (*Run, error) {
	r := &Run{fleet: f, random: rand.New(rand.NewPCG(seed, 7)), pool: pool{of: f.Replica}, opened: -1}
	if err := r.view(0).Validate(); err != nil {
		return nil, fmt.Errorf("fleet %s: %w", f.Name, err)
	}
	return r, nil
}

// Size plays the requests until a time, and returns how many replicas there should be from then on, and later. So many replicas run.
// It is a Size of sim.Fleet: replicas that were not there at the last decision have started right after it.
func (r *Run) Size(at time.Duration, running int) (int, []sim.Need) {
	now := at.Seconds()
	if r.opened < 0 {
		r.opened, r.now, r.wanted = now+r.fleet.Load.Seconds(), now, running
		r.edge = r.opened + window
	}
	if now-r.now > r.fleet.Every.Seconds() {
		r.pool.resize(0, 0)
		r.play(now - r.fleet.Every.Seconds())
	}
	r.pool.resize(running, r.now+r.fleet.Load.Seconds())
	r.play(now)
	if r.fleet.Fixed {
		return r.fleet.Most, nil
	}
	plan, memory, err := traffic.Decide(r.view(now), r.measured(), &r.memory, traffic.Config{})
	if err != nil {
		panic(err) // New has checked the fleet
	}
	r.memory, r.wanted = *memory, plan.Variants[0].Replicas
	later := make([]sim.Need, 0, len(plan.Later))
	for _, n := range plan.Later {
		later = append(later, sim.Need{In: n.In, Replicas: n.Replicas[0]})
	}
	return r.wanted, later
}

// Result returns what came of the requests, with the window at hand.
func (r *Run) Result() Result {
	r.close(math.Inf(1))
	return r.result
}

// play lets requests arrive until a time.
func (r *Run) play(until float64) {
	i := interval{from: max(r.now, r.opened), to: until, serving: r.pool.serving(until)}
	for at := i.from; ; {
		minute := int((at - r.opened) / 60)
		if minute >= len(r.fleet.Rates) {
			break
		}
		if rate := r.fleet.Rates[minute]; rate > 0 {
			at += r.random.ExpFloat64() / rate
		} else {
			at = r.opened + float64(minute+1)*60
			continue
		}
		if at >= until {
			break
		}
		r.close(at)
		took := r.pool.serve(at, r.random)
		i.took = append(i.took, took)
		r.requests++
		if until := r.fleet.Until.Seconds(); !math.IsInf(took, 1) && (until == 0 || at < until) {
			r.result.Answered++
		}
		if took > r.fleet.Promise.Within.Seconds() {
			r.late++
		}
	}
	r.seen = append(slices.DeleteFunc(r.seen, func(o interval) bool { return o.to < until-delay-window }), i)
	r.now = until
}

// close ends the window at hand where a minute has ended before a request at a time, unless it has too few requests and there are more to
// come.
func (r *Run) close(at float64) {
	last := math.IsInf(at, 1)
	if at < r.edge {
		return
	}
	if !last {
		r.edge += (math.Floor((at-r.edge)/window) + 1) * window
	}
	if r.requests < leastWindow && !last || r.requests == 0 {
		return
	}
	r.result.Windows++
	if float64(r.late) > float64(r.requests)*(1-r.fleet.Promise.Quantile) {
		r.result.Broken++
	}
	r.result.Requests, r.result.Late = r.result.Requests+r.requests, r.result.Late+r.late
	r.requests, r.late = 0, 0
}

// view returns the fleet as package traffic sees it at a time.
func (r *Run) view(now float64) *traffic.Fleet {
	serving := r.pool.serving(now)
	v := traffic.Variant{
		Name: "share", Replica: r.fleet.Replica, Cost: 1, Least: r.fleet.Least, Most: r.fleet.Most, Load: r.fleet.Load,
		Wanted: r.wanted, Ready: serving, Warm: float64(serving), Part: 1,
	}
	old := r.visible()
	if seconds, requests, servers := sums(old); servers > 0 {
		v.Measured = traffic.Measured{
			Arrivals: requests / seconds / servers, Latency: r.quantile(old), Quantile: r.fleet.Promise.Quantile,
		}
	}
	return &traffic.Fleet{Name: r.fleet.Name, Promise: r.fleet.Promise, Objective: traffic.Proportional, Variants: []traffic.Variant{v}}
}

// measured returns what was seen of the requests in the last minute.
func (r *Run) measured() traffic.Seen {
	old := r.visible()
	s := traffic.Seen{At: time.Unix(epoch+int64(r.now), 0), Rate: math.NaN(), Latency: r.quantile(old)}
	if seconds, requests, _ := sums(old); seconds > 0 {
		s.Rate = requests / seconds
	}
	return s
}

// visible returns the intervals that metrics cover at the last decision.
func (r *Run) visible() (old []interval) {
	for _, i := range r.seen {
		if i.to > i.from && i.to <= r.now-delay && i.from >= r.now-delay-window {
			old = append(old, i)
		}
	}
	return old
}

// sums returns the length of intervals, the requests in them, and the replicas that served, on average.
func sums(all []interval) (seconds, requests, servers float64) {
	for _, i := range all {
		seconds += i.to - i.from
		requests += float64(len(i.took))
		servers += float64(i.serving) * (i.to - i.from)
	}
	return seconds, requests, servers / max(seconds, 1e-9)
}

// quantile returns the promised quantile of the times in intervals: 0, for unknown, where it would be just the slowest request.
func (r *Run) quantile(all []interval) time.Duration {
	var took []float64
	for _, i := range all {
		took = append(took, i.took...)
	}
	beyond := int(float64(len(took)) * (1 - r.fleet.Promise.Quantile))
	if beyond < 1 {
		return 0
	}
	slices.Sort(took)
	return time.Duration(min(took[len(took)-1-beyond], 3600) * float64(time.Second))
}
