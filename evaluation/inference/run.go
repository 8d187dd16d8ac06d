package inference

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// Load is requests a second over time, a rate for each span.
type Load struct {
	Span  time.Duration
	Rates []float64
	// first and last are when the first request arrived and the last one so far, while a file of requests is read.
	first, last time.Time
}

// Policy sizes a fleet.
type Policy interface {
	// Decide is called each Interval. It is given the fleet as it is, and what was seen in the last minute, and returns numbers of replicas and parts
	// of the requests.
	Decide(f *traffic.Fleet, seen traffic.Seen, busy []float64) (replicas []int, parts []float64)
}

// Interval is the time between two decisions: that of Kubernetes' HorizontalPodAutoscaler.
const Interval = 15 * time.Second

// delay is how old metrics are when a policy sees them.
const delay = 15 * time.Second

// Result is what came of a run.
type Result struct {
	// Windows of a minute, merged until they have 100 requests, and Broken those in which more than the promised part was late.
	Windows, Broken int
	Requests, Late  int
	// Cost is the mean of the costs of the replicas over time.
	Cost float64
	// Moves counts changes of numbers of replicas.
	Moves int
	// Mean and P99 latencies of all requests.
	Mean, P99 time.Duration
}

// Truth is how replicas really are, where that differs from what was declared.
type Truth struct {
	// Replicas are by variant; nil is as declared.
	Replicas []traffic.Replica
	// LoadTimes are those of which each replica has a random one; nil is as declared.
	LoadTimes []time.Duration
}

// Run plays a load. The time before the warm-up is over does not count.
func Run(declared traffic.Fleet, truth Truth, load Load, warmUp time.Duration, policy Policy, seed uint64) Result {
	r := &run{fleet: &fleet{rng: rand.New(rand.NewPCG(seed, 7)), slo: declared.Promise.Within.Seconds()}, declared: declared, policy: policy, from: warmUp.Seconds()}
	r.declared.Variants = append([]traffic.Variant(nil), declared.Variants...)
	loads := &loading{times: truth.LoadTimes, rng: rand.New(rand.NewPCG(seed, 8))}
	for i := range r.declared.Variants {
		v := &r.declared.Variants[i]
		p := pool{variant: v, truth: v.Replica, loads: loads}
		if truth.Replicas != nil {
			p.truth = truth.Replicas[i]
		}
		p.channels = max(1, int(math.Round(p.truth.Rate*p.truth.Time.Seconds())))
		p.resize(v.Wanted, math.Inf(-1))
		r.fleet.pools = append(r.fleet.pools, p)
		r.fleet.parts = append(r.fleet.parts, v.Part)
	}
	r.play(load)
	return r.result()
}

type run struct {
	// from is when results begin to count.
	from     float64
	fleet    *fleet
	declared traffic.Fleet
	policy   Policy
	out      Result
	// window is the one at hand.
	requests, late int
	// ticks are what was seen in the last intervals, the newest last.
	ticks []tick
	sum   float64
	all   histogram
}

// tick is what was seen in an interval, by pool.
type tick struct {
	requests int
	arrivals []int
	seen     []histogram
	busy     []float64
	serving  []int
}

func (r *run) play(load Load) {
	f, end := r.fleet, float64(len(load.Rates))*load.Span.Seconds()
	for step := 0; f.now < end; step++ {
		next := f.now + Interval.Seconds()
		r.interval(load, next)
		f.now = next
		if step%int(time.Minute/Interval) == int(time.Minute/Interval)-1 {
			r.close(false)
		}
		r.decide()
	}
	r.close(true)
	r.out.Cost = f.cost / (end - r.from)
}

// interval lets requests arrive until a time, at random times.
func (r *run) interval(load Load, until float64) {
	f := r.fleet
	t := tick{}
	for i := range f.pools {
		f.pools[i].seen, f.pools[i].busy = histogram{}, 0
		if f.now >= r.from {
			f.cost += float64(len(f.pools[i].replicas)) * float64(f.pools[i].variant.Cost) * Interval.Seconds()
		}
		t.serving = append(t.serving, f.pools[i].serving(f.now))
	}
	for at := f.now; ; {
		rate := load.at(at)
		if rate <= 0 {
			at = (math.Floor(at/load.Span.Seconds()) + 1) * load.Span.Seconds()
		} else {
			at += f.rng.ExpFloat64() / rate
		}
		if at >= until {
			break
		}
		took := f.serve(at)
		t.requests++
		r.requests++
		r.sum += min(took, 1e6)
		r.all.add(took)
		if took > f.slo {
			r.late++
		}
	}
	for i := range f.pools {
		t.arrivals = append(t.arrivals, f.pools[i].seen.all)
		t.seen = append(t.seen, f.pools[i].seen)
		t.busy = append(t.busy, f.pools[i].busy)
	}
	if r.ticks = append(r.ticks, t); len(r.ticks) > int((time.Minute+delay)/Interval) {
		r.ticks = r.ticks[1:]
	}
}

func (l *Load) at(seconds float64) float64 {
	at := int(seconds / l.Span.Seconds())
	return l.Rates[min(at, len(l.Rates)-1)]
}

// close ends a window, unless it has too few requests.
func (r *run) close(last bool) {
	if r.requests < 100 && !last || r.requests == 0 {
		return
	}
	if r.fleet.now <= r.from {
		r.requests, r.late, r.sum, r.all = 0, 0, 0, histogram{}
		return
	}
	r.out.Windows++
	if float64(r.late) > float64(r.requests)*(1-r.declared.Promise.Quantile) {
		r.out.Broken++
	}
	r.out.Requests += r.requests
	r.out.Late += r.late
	r.requests, r.late = 0, 0
}

// decide has the policy decide on what was seen, and carries it out.
func (r *run) decide() {
	f := r.fleet
	seen := traffic.Seen{At: time.Unix(int64(f.now), 0).Add(365 * 24 * time.Hour), Rate: math.NaN()}
	old := r.ticks[:len(r.ticks)-int(delay/Interval)]
	minute := Interval.Seconds() * float64(len(old))
	busy := make([]float64, len(f.pools))
	var all histogram
	requests := 0
	for _, t := range old {
		requests += t.requests
	}
	if len(old) > 0 {
		seen.Rate = float64(requests) / minute
	}
	for i := range f.pools {
		p := &f.pools[i]
		v := &r.declared.Variants[i]
		v.Wanted, v.Ready, v.Part = len(p.replicas), p.serving(f.now), f.parts[i]
		v.Warm, v.Measured = float64(v.Ready), traffic.Measured{}
		var h histogram
		arrivals, servers := 0, 0
		for k := range old {
			h.merge(&old[k].seen[i])
			arrivals += old[k].arrivals[i]
			if n := old[k].serving[i]; n > 0 {
				busy[i] += min(1, old[k].busy[i]/(Interval.Seconds()*float64(n*p.channels))) / float64(len(old))
			}
			servers += old[k].serving[i]
		}
		all.merge(&h)
		if servers > 0 {
			mean := float64(servers) / float64(len(old))
			v.Measured = traffic.Measured{
				Arrivals: float64(arrivals) / minute / mean, Latency: r.measured(&h), Quantile: r.declared.Promise.Quantile,
			}
		}
	}
	seen.Latency = r.measured(&all)
	replicas, parts := r.policy.Decide(&r.declared, seen, busy)
	for i := range f.pools {
		if len(f.pools[i].replicas) != replicas[i] && f.now > r.from {
			r.out.Moves++
		}
		f.pools[i].resize(replicas[i], f.now)
	}
	copy(f.parts, parts)
}

// measured returns the promised quantile of what was seen, as the controller measures it: 0, for unknown, where it would be just the slowest
// request.
func (r *run) measured(seen *histogram) time.Duration {
	if q := r.declared.Promise.Quantile; float64(seen.all)*(1-q) >= 1 {
		return seen.quantile(q)
	}
	return 0
}

func (r *run) result() Result {
	r.out.Mean = time.Duration(r.sum / float64(max(1, r.out.Requests)) * float64(time.Second))
	r.out.P99 = r.all.quantile(.99)
	return r.out
}
