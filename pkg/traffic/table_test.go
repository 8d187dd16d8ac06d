package traffic

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A request waits on average for half of the batch that it finds, and for all of it in a quantile. At 5 of 10 a second the mean is
// 0.1 + 0.05 (M/D/1) + 0.05 × ½ ÷ 2; of the p99, 0.5·e^(−10x) = 0.01 gives x = 0.391.
func TestGate(t *testing.T) {
	r := Replica{Rate: 10, Time: 100 * time.Millisecond, Gate: 50 * time.Millisecond}
	l, _ := r.At(5)
	near(t, "the mean", l.Mean().Seconds(), .1625, 1e-6)
	near(t, "the p99", l.Quantile(.99).Seconds(), .1+.05+.3335, 1e-3) // a wait of M/D/1 is longer than 0.3335 in 0.01 of all cases
	l, _ = r.At(0)
	near(t, "the p99 of an idle replica", l.Quantile(.99).Seconds(), .1, 1e-6)
}

// Two phases have the mean and the variation that they should have.
func TestWideTimes(t *testing.T) {
	r := Replica{Rate: 10, Time: 100 * time.Millisecond, Variation: 4}
	l, _ := r.At(0)
	square := 0.0
	for _, p := range l.phases {
		square += p.part * 2 / (p.rate * p.rate)
	}
	near(t, "the mean square", square, (1+4)*.1*.1, 1e-9)
}

func TestSlowed(t *testing.T) {
	got := Replica{Rate: 10, Time: time.Second, Variation: .5, Gate: 100 * time.Millisecond, FirstToken: 50 * time.Millisecond, Ceiling: 8}.Slowed(2)
	want := Replica{Rate: 5, Time: 2 * time.Second, Variation: .5, Gate: 200 * time.Millisecond, FirstToken: 100 * time.Millisecond, Ceiling: 4, parallel: 10}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Replica{})); diff != "" {
		t.Error(diff)
	}
}

// Poisson: with 5.43 expected, at most 8 happen in 0.9 of all cases.
func TestInFlight(t *testing.T) {
	near(t, "arrivals for 8 in flight", InFlight(8, 10*time.Second, .9), .5432, 1e-3)
	near(t, "arrivals for 1 in flight", InFlight(1, time.Second, .9), .5318, 1e-3)
}

// A slower replica has longer latencies, at each step. The search for how rare long waits are begins left of, at and right of a point
// where Newton's method jumps far away.
func TestLongWaitsOfFixedTimes(t *testing.T) {
	last := time.Duration(0)
	for slowdown := 1.05; slowdown < 3; slowdown += .005 {
		r := Replica{Rate: 1, Time: time.Second}.Slowed(slowdown)
		l, _ := r.At(1. / 6)
		if got := l.Quantile(.99); got <= last || got > last+last/8 && last > 0 {
			t.Fatalf("the p99 is %v at a slowdown of %v, and %v at the step before", got, slowdown, last)
		} else {
			last = got
		}
	}
}

// The first token comes after the wait for a place, which takes whole answers, and after the replica has read the prompt.
func TestFirstToken(t *testing.T) {
	r := Replica{Rate: 10, Time: 100 * time.Millisecond, Variation: 1, FirstToken: 10 * time.Millisecond}
	l, _ := r.At(5)
	// M/M/1: half of the requests wait for an exponential time of mean 1 ÷ (10 − 5), and reading takes an exponential time of mean 10 ms.
	const wait, read, at = 5.0, 100.0, .3
	want := .5*math.Exp(-read*at) + .5*(read*math.Exp(-wait*at)-wait*math.Exp(-read*at))/(read-wait)
	near(t, "part without a token after 300 ms", l.tail(at), want, 1e-9)
	near(t, "mean", l.Mean().Seconds(), .5/5+.01, 1e-9)

	whole := r
	whole.FirstToken = 0
	all := r
	all.FirstToken = r.Time
	promise := Promise{Quantile: .9, Within: 300 * time.Millisecond}
	if first, answer := r.Capacity(promise), whole.Capacity(promise); !(first > answer) || all.Capacity(promise) != answer {
		t.Errorf("capacity %v for the first token after 10 ms, %v after all, %v for the answer; want more, and the same twice", first, all.Capacity(promise), answer)
	}
}

// A guard grows too while tokens follow too slowly, although the first ones are in time.
func TestGuardOfTokens(t *testing.T) {
	f, memory := serving(2, 2, .9), &Memory{}
	f.Promise.PerToken = 40 * time.Millisecond
	for minute := range 10 {
		at := midnight.Add(time.Duration(minute) * time.Minute)
		_, memory = decided(t, &f, Seen{At: at, Rate: 1, Latency: time.Millisecond, PerToken: 50 * time.Millisecond}, memory)
	}
	near(t, "guard", memory.Guard, 1.1, 1e-9)
}

func TestCapacity(t *testing.T) {
	promise := Promise{Quantile: .99, Within: time.Second}
	r := single(50)
	near(t, "the capacity of M/M/1", r.Capacity(promise), 50-math.Log(100), 1e-6)
	if r.Ceiling = 20; r.Capacity(promise) != 20 {
		t.Errorf("with a ceiling of 20 the capacity is %v", r.Capacity(promise))
	}
	if got := r.Capacity(Promise{Quantile: .99, Within: time.Millisecond}); got != 0 {
		t.Errorf("a promise that nothing keeps has capacity %v", got)
	}
	near(t, "the best promise", r.Best(.99).Seconds(), math.Log(100)/50, 1e-6)
}

func TestCheapest(t *testing.T) {
	for name, x := range map[string]struct {
		options []Option
		wanted  float64
		want    []int
	}{
		"a dearer one for its capacity is cheaper for little": {[]Option{{1, 1, 0, 1}, {3, 2, 0, 1}, {4, 3, 0, 1}}, 1, []int{1, 0, 0}},
		"of equally cheap ones the fewest":                    {[]Option{{1, 1, 0, 9}, {2, 2, 0, 9}}, 4, []int{0, 2}},
		"of equal ones the first":                             {[]Option{{2, 2, 0, 9}, {2, 2, 0, 9}}, 3, []int{2, 0}},
		"nothing":                                             {[]Option{{2, 2, 1, 9}, {2, 2, 0, 9}}, 0, []int{1, 0}},
		"too much":                                            {[]Option{{2, 2, 0, 3}, {0, 1, 0, 3}}, 100, []int{3, 0}},
	} {
		if diff := cmp.Diff(x.want, Cheapest(x.options, x.wanted).Replicas); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, o := range []Option{{math.NaN(), 1, 0, 1}, {-1, 1, 0, 1}, {math.Inf(1), 1, 0, 1}, {1, 0, 0, 1}, {1, 1, -1, 1}, {1, 1, 2, 1}} {
		if o.Validate() == nil {
			t.Errorf("%+v is legal", o)
		}
	}
}

// serving returns two variants with ready replicas.
func serving(a100, t4 int, part float64) Fleet {
	f := twoGPUs()
	for i, n := range []int{a100, t4} {
		v := &f.Variants[i]
		v.Wanted, v.Ready, v.Warm = n, n, float64(n)
	}
	f.Variants[0].Part, f.Variants[1].Part = part, 1-part
	return f
}

func decided(t *testing.T, f *Fleet, s Seen, m *Memory) (*Plan, *Memory) {
	t.Helper()
	p, after, err := Decide(f, s, m, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return p, after
}

// A promise that is broken although enough replicas serve asks for more, step by step, up to twice as much; one that is broken because too few serve
// does not, and no single minute does. Each step waits for the replicas of the one before: a minute to load and a minute to be measured. Once the promise
// is kept, the guard gives back a step in each patience, eight minutes here, and waits twice as long when that was wrong.
func TestGuard(t *testing.T) {
	f, m := serving(4, 0, 1), &Memory{}
	at := midnight
	minute := func(rate float64, latency time.Duration) {
		at = at.Add(time.Minute)
		_, m = decided(t, &f, Seen{At: at, Rate: rate, Latency: latency}, m)
	}
	minutes := func(n int, rate float64, latency time.Duration) {
		for range n {
			minute(rate, latency)
		}
	}
	minutes(2, 100, 2*time.Second)
	near(t, "the guard after two minutes", m.Guard, 1, 1e-9)
	minute(100, 2*time.Second)
	near(t, "the guard after three minutes", m.Guard, 1.1, 1e-9)
	minutes(3, 100, 2*time.Second)
	near(t, "the guard while replicas load", m.Guard, 1.1, 1e-9)
	minutes(40, 100, 2*time.Second)
	near(t, "the guard after many", m.Guard, 2, 1e-9)
	minutes(9, 100, time.Second/2)
	near(t, "the guard after a patience", m.Guard, 2/1.1, 1e-9)
	minutes(8, 100, 2*time.Second)
	near(t, "the guard when that was wrong", m.Guard, 2, 1e-9)
	minutes(9, 100, time.Second/2)
	near(t, "the guard before twice the patience", m.Guard, 2, 1e-9)
	minutes(8, 100, time.Second/2)
	near(t, "the guard after twice the patience", m.Guard, 2/1.1, 1e-9)

	m = &Memory{}
	minutes(10, 1000, 2*time.Second)
	near(t, "the guard while too few serve", m.Guard, 1, 1e-9)
}

// A variant that answers errors keeps its replicas, gets no more, and the others grow in its place.
func TestFailingVariant(t *testing.T) {
	f := serving(1, 8, .5)
	f.Variants[1].Fails = true
	p, _ := decided(t, &f, Seen{At: midnight, Rate: 80}, &Memory{})
	if got := []int{p.Variants[0].Replicas, p.Variants[1].Replicas}; !slices.Equal(got, []int{2, 8}) || p.Variants[1].Part != 0 || p.Reason != Grows {
		t.Errorf("%s %v, parts %+v", p.Reason, got, p.Variants)
	}
}

// Parts move by a fifth at a time, unless a variant gets more than it serves.
func TestShift(t *testing.T) {
	f := serving(2, 8, .2) // in proportion to rates: 0.56; the t4s serve 37 a second
	p, _ := decided(t, &f, Seen{At: midnight, Rate: 40}, &Memory{})
	near(t, "the part after a step", p.Variants[0].Part, .4, 1e-6)
	p, _ = decided(t, &f, Seen{At: midnight, Rate: 60}, &Memory{})
	near(t, "the part where the t4s have too much", p.Variants[0].Part, 100.0/180, 1e-6)
}

// Replicas that take long to load are started for what arrives by then.
func TestLoadTimeIsCounted(t *testing.T) {
	demand := func(load time.Duration) float64 {
		f, m := serving(4, 0, 1), &Memory{}
		f.Variants[1].Load = load
		var p *Plan
		for i := range 20 {
			p, m = decided(t, &f, Seen{At: midnight.Add(time.Duration(i) * time.Minute), Rate: 10 * float64(i)}, m)
		}
		return p.Demand
	}
	if soon, late := demand(0), demand(5*time.Minute); late < soon+40 {
		t.Errorf("at 10 a second more each minute, %v are wanted with a short load time and %v with one of five minutes", soon, late)
	}
}

// If no replica keeps the promise, the fleet is sized so that none is overloaded: an a100 gets 0.7 × 50 a second, a t4 7. For
// 110 (100 and the margin) three a100s and a t4 are the cheapest.
func TestPromiseTooShort(t *testing.T) {
	f := serving(1, 0, 1)
	f.Promise.Within = 20 * time.Millisecond
	p, _ := decided(t, &f, Seen{At: midnight, Rate: 100}, &Memory{})
	if p.Reason != PromiseTooShort || p.Variants[0].Replicas != 3 || p.Variants[1].Replicas != 1 || p.Best.Round(time.Millisecond) != 92*time.Millisecond {
		t.Errorf("%s, %d replicas, the best promise is %v", p.Reason, p.Variants[0].Replicas, p.Best)
	}
}

// A swap that saves a thirtieth is not worth it; one that saves half is, and the cheaper replicas load before the others leave.
func TestSwap(t *testing.T) {
	for _, x := range []struct {
		cost   int64
		reason Reason
		want   []int
	}{{29, Steady, []int{0, 3}}, {15, Cheaper, []int{1, 3}}} {
		f, m := serving(0, 3, 0), &Memory{}
		f.Variants[0].Least, f.Variants[0].Cost, f.Variants[1].Cost = 0, x.cost, 10
		f.Variants[0].Load, f.Variants[1].Load = 0, 0
		var p *Plan
		for i := range 10 {
			p, m = decided(t, &f, Seen{At: midnight.Add(time.Duration(i) * time.Minute), Rate: 10}, m)
		}
		if got := []int{p.Variants[0].Replicas, p.Variants[1].Replicas}; p.Reason != x.reason || !slices.Equal(got, x.want) {
			t.Errorf("at a cost of %d: %s %v, want %s %v", x.cost, p.Reason, got, x.reason, x.want)
		}
	}
}

// A usual peak falls by three tenths with each day without it.
func TestForecastForgetsADay(t *testing.T) {
	var f Forecast
	peak := func(m int) float64 {
		if m >= 600 && m < 605 {
			return 1000
		}
		return 100
	}
	observe(t, &f, 0, 2*1440+598, peak)
	if got := f.Highest(3*time.Minute) / (1 + f.RiseMargin) / f.Today; math.Abs(got-730) > 20 { // 1000 − 0.3 × 900
		t.Errorf("%v are expected a day after, want 730", got)
	}
}

// Minutes that are missing are taken to be like the last ones, and a trend is not drawn out for longer than it was seen.
func TestForecastOfFewMinutes(t *testing.T) {
	var f Forecast
	observe(t, &f, 0, 30, func(m int) float64 { return 10 * float64(m) })
	ten, hour := f.Highest(10*time.Minute), f.Highest(time.Hour)
	if ten != hour {
		t.Errorf("in ten minutes %v are expected, in an hour %v", ten, hour)
	}
	observe(t, &f, 34, 1, always(280))
	if diff := cmp.Diff([]float64{280, 280, 280, 280}, f.Recent[6:], cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 6 })); diff != "" {
		t.Errorf("after four minutes without metrics: %s", diff)
	}
}
