package traffic

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// smif is SMIF's mix of four unlike GPUs, one request at a time each.
func smif() []Pool {
	pools := make([]Pool, 0, 4)
	for _, rate := range []float64{10, 5, 3.3, 1} {
		pools = append(pools, Pool{Replica: single(rate), Replicas: 1})
	}
	return pools
}

// single returns a replica that serves one request at a time, with exponential times: M/M/1.
func single(rate float64) Replica {
	return Replica{Rate: rate, Time: time.Duration(float64(time.Second) / rate), Variation: 1}
}

func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if !(math.Abs(got-want) <= part*math.Abs(want)+1e-12) {
		t.Errorf("%s is %v, want %v within %v", what, got, want, part)
	}
}

// One channel with exponential times is M/M/1: the mean is 1 ÷ (μ − λ), the p99 ln 100 ÷ (μ − λ).
func TestLatencyOfOneChannel(t *testing.T) {
	r := single(10)
	for _, arrivals := range []float64{0, 1, 5, 9, 9.9} {
		l, ok := r.At(arrivals)
		if !ok {
			t.Fatalf("%v is an overload", arrivals)
		}
		near(t, "the mean", l.Mean().Seconds(), 1/(10-arrivals), 1e-6)
		near(t, "the p99", l.Quantile(.99).Seconds(), math.Log(100)/(10-arrivals), 1e-6)
	}
	for _, arrivals := range []float64{10, 11, -1, math.NaN()} {
		if _, ok := r.At(arrivals); ok {
			t.Errorf("%v is no overload", arrivals)
		}
	}
}

// Known values of queues: M/D/1 waits half as long as M/M/1; Erlang's C for 5 channels at 0.8 is 0.5541.
func TestLatencyByTheBook(t *testing.T) {
	fixed := Replica{Rate: 10, Time: 100 * time.Millisecond}
	l, _ := fixed.At(5)
	near(t, "the mean of M/D/1", l.Mean().Seconds(), .1+.05, 1e-6)
	near(t, "Erlang's C", erlangC(5, .8), .5541, 1e-4)
	five := Replica{Rate: 50, Time: 100 * time.Millisecond, Variation: 1}
	l, _ = five.At(40)
	near(t, "the mean of M/M/5", l.Mean().Seconds(), .1+.5541/10, 1e-4)
	wide := Replica{Rate: 10, Time: 100 * time.Millisecond, Variation: 4}
	l, _ = wide.At(5)
	near(t, "the mean of M/G/1", l.Mean().Seconds(), .1+.1*2.5, 1e-6) // Pollaczek and Khinchine: ρ(1+CV²)/2(1−ρ) = 2.5
	l, _ = wide.At(0)
	near(t, "the mean of service", l.Mean().Seconds(), .1, 1e-9)
}

// The formulas of the literature at 10:5:3.3:1. The slowest drops out of the mean-optimal division below 0.574 of the rate.
func TestSplitByTheBook(t *testing.T) {
	pools := smif()
	for _, rho := range []float64{.3, .5, .7, .9} {
		demand := 19.3 * rho
		mean := Split(pools, demand, MeanOptimal, .99)
		tail := Split(pools, demand, TailOptimal, .99)
		wantMean, wantTail := bookMean(pools, demand), bookTail(pools, demand)
		for i := range pools {
			near(t, "mean-optimal", mean[i], wantMean[i], 1e-3)
			near(t, "p99-optimal", tail[i], wantTail[i], 1e-3)
			near(t, "proportional", Split(pools, demand, Proportional, .99)[i], pools[i].Replica.Rate*rho, 1e-9)
		}
	}
	if got := Split(pools, 19.3*.57, MeanOptimal, .99); got[3] != 0 {
		t.Errorf("the slowest gets %v below .574", got[3])
	}
	if got := Split(pools, 19.3*.58, MeanOptimal, .99); !(got[3] > 0) {
		t.Errorf("the slowest gets nothing above .574")
	}
	// Published: the mean is 0.75 times that of the proportional division at 0.5, and 0.82 times at 0.7.
	for rho, want := range map[float64]float64{.5: .75, .7: .82} {
		ratio := meanOf(pools, Split(pools, 19.3*rho, MeanOptimal, .99)) / meanOf(pools, Split(pools, 19.3*rho, Proportional, .99))
		near(t, "the mean against proportional", ratio, want, .01)
	}
}

// bookMean is λ = μ − √μ·(Σμ − Λ) ÷ Σ√μ; a pool with a negative part gets none, and the rest is solved again.
func bookMean(pools []Pool, demand float64) []float64 {
	return book(pools, demand, func(mu, slack, roots float64, _ int) float64 { return mu - math.Sqrt(mu)*slack/roots })
}

// bookTail gives all the same slack μ − λ.
func bookTail(pools []Pool, demand float64) []float64 {
	return book(pools, demand, func(mu, slack, _ float64, n int) float64 { return mu - slack/float64(n) })
}

func book(pools []Pool, demand float64, part func(mu, slack, roots float64, n int) float64) []float64 {
	out, in := make([]float64, len(pools)), make([]bool, len(pools))
	for i := range in {
		in[i] = true
	}
	for {
		sum, roots, n := 0.0, 0.0, 0
		for i := range pools {
			if in[i] {
				sum += pools[i].Replica.Rate
				roots += math.Sqrt(pools[i].Replica.Rate)
				n++
			}
		}
		again := false
		for i := range pools {
			if out[i] = 0; in[i] {
				if out[i] = part(pools[i].Replica.Rate, sum-demand, roots, n); out[i] < 0 {
					in[i], again = false, true
				}
			}
		}
		if !again {
			return out
		}
	}
}

func meanOf(pools []Pool, parts []float64) float64 {
	sum, all := 0.0, 0.0
	for i, p := range parts {
		if p > 0 {
			l, _ := pools[i].Replica.At(p / pools[i].Replicas)
			sum += p * l.mean()
			all += p
		}
	}
	return sum / all
}

// For random replicas, latency grows with arrivals, the capacity is the most at which the promise holds, and quantiles are in
// order.
func TestPropertyLatency(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawReplica(t)
		p := Promise{Quantile: rapid.SampledFrom([]float64{.5, .9, .99}).Draw(t, "quantile"), Within: time.Duration(rapid.Float64Range(1e5, 1e10).Draw(t, "promise"))}
		a := rapid.Float64Range(0, .98).Draw(t, "a") * r.Rate
		b := a + rapid.Float64Range(0, 1).Draw(t, "more")*(r.Rate*.99-a)
		la, _ := r.At(a)
		lb, _ := r.At(b)
		if lb.mean() < la.mean()*(1-1e-9) || lb.quantile(.99) < la.quantile(.99)*(1-1e-6) {
			t.Fatalf("at %v: mean %v, p99 %v; at %v: %v, %v", a, la.mean(), la.quantile(.99), b, lb.mean(), lb.quantile(.99))
		}
		if la.quantile(.9) > la.quantile(.99)*(1+1e-9) {
			t.Fatalf("p90 %v above p99 %v", la.quantile(.9), la.quantile(.99))
		}
		capacity := r.Capacity(p)
		if capacity > r.top() || capacity < 0 {
			t.Fatalf("capacity %v of %v", capacity, r.top())
		}
		if l, ok := r.At(capacity * .999); capacity > 0 && (!ok || l.Quantile(p.Quantile) > p.Within) {
			t.Fatalf("broken below the capacity")
		}
		if l, ok := r.At(capacity*1.001 + 1e-9*r.Rate); capacity < r.top()*.999 && ok && l.Quantile(p.Quantile) < p.Within*999/1000 && capacity > 0 {
			t.Fatalf("kept well above the capacity %v: %v of %v", capacity, l.Quantile(p.Quantile), p.Within)
		}
		slower := r.Slowed(2)
		if got := slower.Capacity(p); got > capacity*(1+1e-6) {
			t.Fatalf("half as fast has capacity %v above %v", got, capacity)
		}
	})
}

func drawReplica(t *rapid.T) Replica {
	r := Replica{
		Rate: math.Exp(rapid.Float64Range(-3, 8).Draw(t, "rate")), Variation: rapid.SampledFrom([]float64{0, .25, 1, 3}).Draw(t, "variation"),
	}
	r.Time = time.Duration(max(1000, float64(time.Second)*rapid.Float64Range(.5, 20).Draw(t, "channels")/r.Rate))
	if rapid.Bool().Draw(t, "batches") {
		r.Gate = r.Time / 2
	}
	if rapid.Bool().Draw(t, "capped") {
		r.FirstToken = time.Duration(max(1000, rapid.Float64Range(0, 1).Draw(t, "first token")*float64(r.Time)))
		r.Ceiling = r.Rate * rapid.Float64Range(.2, 1.2).Draw(t, "ceiling")
	}
	return r
}

// A division has the sum of the demand, gives nothing to no replica, does not depend on the order, and is no worse by its objective
// than the others.
func TestPropertySplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pools := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Pool {
			return Pool{Replica: drawReplica(t), Replicas: float64(rapid.IntRange(0, 4).Draw(t, "replicas"))}
		}), 1, 5).Draw(t, "pools")
		rate := 0.0
		for i := range pools {
			rate += pools[i].Replicas * pools[i].Replica.Rate
		}
		demand := rate * rapid.Float64Range(0.01, 1.2).Draw(t, "busy")
		results := map[Objective][]float64{}
		for _, objective := range Objectives {
			parts := Split(pools, demand, objective, .99)
			if rate == 0 {
				if parts != nil {
					t.Fatalf("%v without replicas", parts)
				}
				continue
			}
			sum := 0.0
			for i, p := range parts {
				sum += p
				if p < 0 || p > 0 && pools[i].Replicas == 0 {
					t.Fatalf("%s: part %d of %v is %v", objective, i, parts, p)
				}
				if demand < rate*nearlyFull && p > pools[i].Replicas*pools[i].Replica.Rate*(1+1e-6) {
					t.Fatalf("%s: pool %d is overloaded with %v", objective, i, p)
				}
			}
			if math.Abs(sum-demand) > 1e-6*demand {
				t.Fatalf("%s: the sum is %v, not %v", objective, sum, demand)
			}
			results[objective] = parts
		}
		if rate == 0 || demand > rate*.98 {
			return
		}
		best := meanOf(pools, results[MeanOptimal])
		for o, parts := range results {
			if got := meanOf(pools, parts); got < best*(1-1e-3) {
				t.Fatalf("the mean of %s is %v, of mean-optimal %v", o, got, best)
			}
		}
		tail := worstOf(pools, results[TailOptimal])
		for o, parts := range results {
			more := slices.Clone(parts) // a quantile may jump where a rate grows by nothing, as where just a hundredth of the requests waits
			for i := range more {
				more[i] *= 1 + 1e-6
			}
			if got := worstOf(pools, more); got < tail*(1-1e-3) {
				t.Fatalf("the worst p99 of %s, with a millionth more requests, is %v, of p99-optimal %v", o, got, tail)
			}
		}
	})
}

func worstOf(pools []Pool, parts []float64) (worst float64) {
	for i, p := range parts {
		if p > 1e-9 {
			l, ok := pools[i].Replica.At(p / pools[i].Replicas)
			if !ok {
				return math.Inf(1)
			}
			worst = max(worst, l.quantile(.99))
		}
	}
	return worst
}

// Whole weights have the sum, differ from the exact ones by less than one where all have at least one, and keep the order.
func TestPropertyIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1e-6, 100)), 1, 8).Draw(t, "parts")
		total := rapid.SampledFrom([]int{8, 100, 1000}).Draw(t, "total")
		weights, sum, all := Integers(parts, total), 0, 0.0
		for _, p := range parts {
			all += p
		}
		if all == 0 {
			if weights != nil {
				t.Fatalf("weights %v of nothing", weights)
			}
			return
		}
		for i, w := range weights {
			sum += w
			if (parts[i] > 0) != (w > 0) {
				t.Fatalf("part %v has weight %d", parts[i], w)
			}
			if exact := parts[i] / all * float64(total); total >= 100 && math.Abs(float64(w)-exact) > float64(len(parts)) {
				t.Fatalf("weight %d for %v", w, exact)
			}
		}
		if sum != total {
			t.Fatalf("the sum of %v is %d, not %d", weights, sum, total)
		}
	})
}

// The cheapest choice is that of trying all.
func TestPropertyCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		options := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Option {
			least := rapid.IntRange(0, 2).Draw(t, "least")
			return Option{
				Capacity: float64(rapid.IntRange(0, 12).Draw(t, "capacity")), Cost: rapid.Int64Range(1, 9).Draw(t, "cost"),
				Least: least, Most: least + rapid.IntRange(0, 4).Draw(t, "more"),
			}
		}), 1, 4).Draw(t, "options")
		wanted := float64(rapid.IntRange(0, 120).Draw(t, "wanted"))
		got := Cheapest(options, wanted)
		best, most, feasible := tryAll(options, wanted)
		switch {
		case got.Cut:
			t.Fatal("the search was cut")
		case feasible && (got.Cost != best || got.Capacity < wanted-1e-6):
			t.Fatalf("%+v costs %d, the least is %d", got, got.Cost, best)
		case !feasible && got.Capacity < most:
			t.Fatalf("%+v has capacity %v of %v", got, got.Capacity, most)
		}
		for i, n := range got.Replicas {
			if n < options[i].Least || n > options[i].Most || options[i].Capacity == 0 && n != options[i].Least {
				t.Fatalf("%d replicas of %+v", n, options[i])
			}
		}
		if more := Cheapest(options, wanted+1); more.Cost < got.Cost && feasible {
			t.Fatalf("more capacity is cheaper")
		}
	})
}

func tryAll(options []Option, wanted float64) (best int64, most float64, feasible bool) {
	best = math.MaxInt64
	var try func(i int, cost int64, capacity float64)
	try = func(i int, cost int64, capacity float64) {
		if i == len(options) {
			most = max(most, capacity)
			if capacity >= wanted && cost < best {
				best, feasible = cost, true
			}
			return
		}
		for n := options[i].Least; n <= options[i].Most; n++ {
			try(i+1, cost+int64(n)*options[i].Cost, capacity+float64(n)*options[i].Capacity)
		}
	}
	try(0, 0, 0)
	return best, most, feasible
}

// The latency that is measured of a slowed replica tells its slowdown.
func TestPropertySlowdown(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawReplica(t)
		r.Ceiling = 0
		by := rapid.Float64Range(.3, 8).Draw(t, "slowdown")
		slow := r.Slowed(by)
		m := Measured{Arrivals: slow.Rate * rapid.Float64Range(.01, .95).Draw(t, "busy"), Quantile: .99}
		l, ok := slow.At(m.Arrivals)
		if !ok {
			t.Fatal("overloaded")
		}
		m.Latency = l.Quantile(.99)
		got, ok := r.Slowdown(m)
		if !ok || math.Abs(got-by) > .01*by {
			t.Fatalf("slowdown %v, want %v", got, by)
		}
	})
}
