package traffic

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/must"
)

var midnight = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// loop is a fleet whose plans are carried out: replicas load, serve and leave, and their work is measured.
type loop struct {
	fleet  Fleet
	memory *Memory
	now    time.Time
	// starts are when the replicas of each variant began to load.
	starts [][]time.Time
	// slower is by how much each variant is slower than declared.
	slower []float64
	plan   *Plan
	// every is the time between two decisions.
	every time.Duration
	// late counts the decisions at which the promise was broken, by the prediction of what really is.
	late int
}

func newLoop(f Fleet) *loop {
	l := &loop{fleet: f, memory: &Memory{}, now: midnight, every: 15 * time.Second, starts: make([][]time.Time, len(f.Variants)), slower: make([]float64, len(f.Variants))}
	for i := range f.Variants {
		l.slower[i] = 1
		for range f.Variants[i].Wanted {
			l.starts[i] = append(l.starts[i], l.now.Add(-time.Hour))
		}
	}
	return l
}

// step lets the time between two decisions pass at a rate, and carries the plan out.
func (l *loop) step(rate float64) error {
	l.now = l.now.Add(l.every)
	seen := Seen{At: l.now, Rate: rate}
	worst, served := 0.0, false
	for i := range l.fleet.Variants {
		v := &l.fleet.Variants[i]
		v.Wanted, v.Ready = len(l.starts[i]), 0
		for _, at := range l.starts[i] {
			if l.now.Sub(at) >= v.Load {
				v.Ready++
			}
		}
		v.Warm, v.Measured = float64(v.Ready), Measured{}
		if v.Part == 0 || v.Ready == 0 || rate == 0 {
			continue
		}
		served = true
		truth := v.Replica.Slowed(l.slower[i])
		each := rate * v.Part / float64(v.Ready)
		latency, ok := truth.At(each)
		v.Measured = Measured{Arrivals: each, Latency: MaxTime, Quantile: l.fleet.Promise.Quantile}
		if ok {
			v.Measured.Latency = latency.Quantile(l.fleet.Promise.Quantile)
		}
		worst = max(worst, v.Measured.Latency.Seconds())
	}
	if seen.Latency = seconds(worst); seen.Latency > l.fleet.Promise.Within || rate > 0 && !served {
		l.late++
	}
	plan, memory, err := Decide(&l.fleet, seen, l.memory, Config{Interval: l.every})
	if err != nil {
		return err
	}
	l.plan, l.memory = plan, memory
	for i, s := range plan.Variants {
		for len(l.starts[i]) < s.Replicas {
			l.starts[i] = append(l.starts[i], l.now)
		}
		l.starts[i] = l.starts[i][:s.Replicas]
		l.fleet.Variants[i].Part = s.Part
	}
	return nil
}

func (l *loop) run(t *testing.T, span time.Duration, rate func(i int) float64) {
	t.Helper()
	for i := range int(span / (15 * time.Second)) {
		must.OK(t, l.step(rate(i)))
	}
}

func (l *loop) sizes() []int {
	out := make([]int, len(l.starts))
	for i := range out {
		out[i] = len(l.starts[i])
	}
	return out
}

func always(rate float64) func(int) float64 { return func(int) float64 { return rate } }

// twoGPUs is a fast and dear variant, and a slow and cheap one.
func twoGPUs() Fleet {
	return Fleet{
		Name: "bert", Promise: Promise{Quantile: .99, Within: time.Second}, Objective: Proportional,
		Variants: []Variant{
			{Name: "a100", Replica: single(50), Cost: 10, Least: 1, Most: 20, Load: time.Minute, Wanted: 1, Ready: 1},
			{Name: "t4", Replica: single(10), Cost: 3, Most: 20, Load: time.Minute},
		},
	}
}

// A fleet grows when more arrives, and shrinks eight minutes after that has passed: eight times the load time. An a100 serves 45.4 a second within the promise (50 − ln 100), at
// ten for each, so it is the cheapest; a t4 serves 5.4.
func TestGrowsAndShrinks(t *testing.T) {
	l := newLoop(twoGPUs())
	l.run(t, 20*time.Minute, always(30))
	if diff := cmp.Diff([]int{1, 0}, l.sizes()); diff != "" || l.plan.Reason != Steady {
		t.Fatalf("at 30: %s %s", l.plan.Reason, diff)
	}
	l.run(t, 5*time.Minute, always(120))
	if got := l.sizes(); got[0] < 3 || l.plan.Variants[0].Part < .7 {
		t.Fatalf("at 120: %v, %+v", got, l.plan)
	}
	l.run(t, 6*time.Minute, always(30))
	if got := l.sizes(); got[0] < 3 {
		t.Fatalf("it shrinks after 6 minutes already: %v", got)
	}
	l.run(t, 25*time.Minute, always(30))
	if diff := cmp.Diff([]int{1, 0}, l.sizes()); diff != "" {
		t.Fatalf("at 30 again: %s", diff)
	}
}

// A spike in the middle of a minute of the clock is answered at the next decision, and not when the minute is over. The mean of a minute of which
// the last quarter was at 120 is 52.5.
func TestGrowsWithinTheMinute(t *testing.T) {
	l := newLoop(twoGPUs())
	l.run(t, 20*time.Minute, always(30)) // until the first decision of a minute
	must.OK(t, l.step(52.5))
	if got := l.sizes(); got[0] < 3 || l.plan.Reason != Grows || l.plan.Demand < 120 {
		t.Errorf("fifteen seconds after a jump to 120: %s %v for %v", l.plan.Reason, got, l.plan.Demand)
	}
	must.OK(t, l.step(math.NaN()))
	if got := l.sizes(); got[0] < 3 {
		t.Errorf("without metrics it shrinks: %v", got)
	}
}

// A variant that gets twice as slow loses traffic within three decisions, and the fleet gets more replicas: ten minutes later the promise is kept.
func TestSlowerVariantLosesTraffic(t *testing.T) {
	f := twoGPUs()
	f.Variants[1].Wanted, f.Variants[1].Least = 6, 6
	f.Variants[0].Wanted, f.Variants[0].Least = 2, 2
	l := newLoop(f)
	l.run(t, 20*time.Minute, always(90))
	before := l.plan.Variants[0].Part
	l.slower[0] = 2
	l.run(t, 45*time.Second, always(90))
	after := l.plan.Variants[0]
	if after.Part > before*.9 {
		t.Fatalf("the slower variant had %v of the requests, and has %+v", before, after)
	}
	l.run(t, 10*time.Minute, always(90))
	l.late = 0
	l.run(t, 10*time.Minute, always(90))
	if l.late > 0 {
		t.Errorf("the promise was broken %d times ten minutes later: %v", l.late, l.sizes())
	}
}

// Wrong metrics or variants change nothing that is safe.
func TestSafeDecisionsStand(t *testing.T) {
	base := twoGPUs()
	base.Variants[0].Wanted, base.Variants[0].Ready, base.Variants[0].Warm, base.Variants[0].Part = 3, 3, 3, .8
	base.Variants[1].Wanted, base.Variants[1].Ready, base.Variants[1].Warm, base.Variants[1].Part = 4, 4, 4, .2
	for name, x := range map[string]struct {
		change func(*Fleet, *Seen, *Memory)
		reason Reason
		sizes  []int
		parts  []float64
	}{
		"no metrics":          {func(_ *Fleet, s *Seen, _ *Memory) { s.Rate = math.NaN() }, NoMetrics, []int{3, 4}, []float64{.8, .2}},
		"absurd":              {func(_ *Fleet, s *Seen, _ *Memory) { s.Rate = math.Inf(1) }, NoMetrics, []int{3, 4}, []float64{.8, .2}},
		"the clock went back": {func(_ *Fleet, s *Seen, m *Memory) { m.Minute = s.At.Unix()/60 + 5 }, NoMetrics, []int{3, 4}, []float64{.8, .2}},
		"a variant is gone meanwhile": {func(f *Fleet, s *Seen, _ *Memory) {
			s.Rate = math.NaN()
			f.Variants[1].Ready, f.Variants[1].Warm = 0, 0
		}, NoMetrics, []int{3, 4}, []float64{1, 0}},
		"one answers errors": {func(f *Fleet, _ *Seen, _ *Memory) { f.Variants[1].Fails = true }, Steady, []int{3, 4}, []float64{1, 0}},
		"one answers errors, and its user wants 2": {func(f *Fleet, _ *Seen, _ *Memory) {
			f.Variants[1].Fails, f.Variants[1].Least, f.Variants[1].Most = true, 2, 2
		}, Steady, []int{3, 2}, []float64{1, 0}},
		"all answer errors": {func(f *Fleet, _ *Seen, _ *Memory) {
			f.Variants[0].Fails, f.Variants[1].Fails = true, true
		}, AllFail, []int{3, 4}, []float64{0, 0}},
		"no traffic":     {func(_ *Fleet, s *Seen, _ *Memory) { s.Rate = 0 }, Steady, []int{3, 4}, []float64{.8, .2}},
		"an owned size":  {func(f *Fleet, s *Seen, _ *Memory) { s.Rate, f.Variants[0].Fixed = 170, "an HPA owns it" }, Grows, []int{3, 11}, nil},
		"the most":       {func(_ *Fleet, s *Seen, _ *Memory) { s.Rate = 1e5 }, AtMost, []int{20, 20}, nil},
		"impossible":     {func(f *Fleet, _ *Seen, _ *Memory) { f.Promise.Within = 10 * time.Millisecond }, PromiseTooShort, []int{3, 4}, nil},
		"an old maximum": {func(f *Fleet, s *Seen, _ *Memory) { s.Rate, f.Variants[0].Most = math.NaN(), 2 }, NoMetrics, []int{2, 4}, nil},
	} {
		f, s, m := base, Seen{At: midnight, Rate: 90}, &Memory{}
		f.Variants = slices.Clone(base.Variants)
		x.change(&f, &s, m)
		p, _, err := Decide(&f, s, m, Config{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sizes := []int{p.Variants[0].Replicas, p.Variants[1].Replicas}
		if p.Reason != x.reason || !slices.Equal(sizes, x.sizes) {
			t.Errorf("%s: %s, %v; want %s, %v", name, p.Reason, sizes, x.reason, x.sizes)
		}
		for i := range x.parts {
			if math.Abs(p.Variants[i].Part-x.parts[i]) > .1 {
				t.Errorf("%s: part %d is %v, not %v", name, i, p.Variants[i].Part, x.parts[i])
			}
		}
		if (p.Best > 0) != (x.reason == PromiseTooShort) {
			t.Errorf("%s: the best promise is %v", name, p.Best)
		}
	}
}

func TestFleetIsChecked(t *testing.T) {
	for want, change := range map[string]func(*Fleet){
		`promise: quantile 0.2: legal are numbers from .5 to below 1`:                                   func(f *Fleet) { f.Promise.Quantile = .2 },
		`promise: latency 0s: legal are times above 0 and up to 24h0m0s`:                                func(f *Fleet) { f.Promise.Within = 0 },
		`objective "best": legal are ["proportional" "mean-optimal" "p99-optimal"]`:                     func(f *Fleet) { f.Objective = "best" },
		`variants: there must be at least one`:                                                          func(f *Fleet) { f.Variants = nil },
		`variant "a100": two variants have this name`:                                                   func(f *Fleet) { f.Variants[1].Name = "a100" },
		`variant "t4": rate NaN: legal are numbers above 0 and up to 1e+09 requests a second`:           func(f *Fleet) { f.Variants[1].Replica.Rate = math.NaN() },
		`variant "t4": cost 0: legal are numbers from 1`:                                                func(f *Fleet) { f.Variants[1].Cost = 0 },
		`variant "t4": 5 to 2 replicas: the least number is from 0 to the most`:                         func(f *Fleet) { f.Variants[1].Least, f.Variants[1].Most = 5, 2 },
		`variant "t4": load time -1s: legal are times from 0 to 24h0m0s`:                                func(f *Fleet) { f.Variants[1].Load = -time.Second },
		`variant "t4": time 0s: legal are times above 0 and up to 24h0m0s`:                              func(f *Fleet) { f.Variants[1].Replica.Time = 0 },
		`variant "t4": variation -1: legal are numbers from 0 to 10000`:                                 func(f *Fleet) { f.Variants[1].Replica.Variation = -1 },
		`variant "t4": gate -1ns: legal are times from 0 to 24h0m0s`:                                    func(f *Fleet) { f.Variants[1].Replica.Gate = -1 },
		`variant "t4": first token 2m0s: legal are times from 0 to the time of the whole answer, 100ms`: func(f *Fleet) { f.Variants[1].Replica.FirstToken = 2 * time.Minute },
		`promise: per token -1ns: legal are times from 0 to 24h0m0s`:                                    func(f *Fleet) { f.Promise.PerToken = -1 },
		`variant "t4": ceiling -1: legal are numbers from 0 to 1e+09 requests a second`:                 func(f *Fleet) { f.Variants[1].Replica.Ceiling = -1 },
	} {
		f := twoGPUs()
		change(&f)
		if _, _, err := Decide(&f, Seen{At: midnight}, &Memory{}, Config{}); err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// After a step of the rate, with noise and with replicas that load, the sizes come to rest: three quarters of an hour later they hardly grow any
// more, so that they cannot go up and down again and again either. A move to cheaper replicas is one growth, and takes a decision for each replica
// that leaves. The promise holds.
func TestPropertyRest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := twoGPUs()
		f.Objective = rapid.SampledFrom(Objectives).Draw(t, "objective")
		for i := range f.Variants {
			f.Variants[i].Load = time.Duration(rapid.IntRange(0, 300).Draw(t, "load")) * time.Second
		}
		l := newLoop(f)
		each := rapid.SampledFrom([]int{1, 1, 1, 4}).Draw(t, "decisions in a minute") // four take four times as long to play
		l.every = time.Minute / time.Duration(each)
		from, to := rapid.Float64Range(0, 300).Draw(t, "from"), rapid.Float64Range(0, 300).Draw(t, "to")
		noise := rapid.Float64Range(0, .05).Draw(t, "noise")
		l.slower[0] = rapid.Float64Range(.7, 1.5).Draw(t, "slower")
		step := func(i int, rate float64) (before []int) {
			before = l.sizes()
			must.OK(t, l.step(rate*(1+noise*math.Sin(float64(i)*2.4))))
			checkStep(t, l, before)
			return before
		}
		for i := range 20 * each {
			step(i, from)
		}
		for i := range 45 * each {
			step(i, to)
		}
		l.late = 0
		ups := 0
		for i := range 20 * each {
			before := step(i, to)
			for k, n := range l.sizes() {
				if n > before[k] {
					ups++
				}
			}
		}
		if ups > 2 {
			t.Fatalf("three quarters of an hour after the step the sizes grew %d times in twenty minutes: %v", ups, l.sizes())
		}
		if l.late > 1 { // once, while parts move
			t.Fatalf("the promise was broken %d times: %v, %+v", l.late, l.sizes(), l.plan)
		}
	})
}

// checkStep holds a plan to the laws of each decision.
func checkStep(t *rapid.T, l *loop, before []int) {
	sum := 0.0
	for i, s := range l.plan.Variants {
		v := &l.fleet.Variants[i]
		sum += s.Part
		if s.Replicas < v.Least || s.Replicas > v.Most || s.Part < 0 {
			t.Fatalf("variant %s: %+v", v.Name, s)
		}
		if lost := before[i] - s.Replicas; lost > max(1, before[i]/5) {
			t.Fatalf("variant %s loses %d of %d replicas at once", v.Name, lost, before[i])
		}
	}
	if sum != 0 && math.Abs(sum-1) > 1e-9 {
		t.Fatalf("the sum of the parts is %v", sum)
	}
}

// More requests never make a new fleet cheaper.
func TestPropertyMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := twoGPUs()
		f.Variants[0].Most, f.Variants[1].Most = 50, 50
		rate := rapid.Float64Range(0, 1500).Draw(t, "rate")
		cost := func(rate float64) (cost int64) {
			p, _, err := Decide(&f, Seen{At: midnight, Rate: rate}, &Memory{}, Config{})
			must.OK(t, err)
			for i, s := range p.Variants {
				cost += int64(s.Replicas) * f.Variants[i].Cost
			}
			return cost
		}
		if a, b := cost(rate), cost(rate*rapid.Float64Range(1, 2).Draw(t, "more")); a > b {
			t.Fatalf("a lower rate costs %d, a higher one %d", a, b)
		}
	})
}

// Decide does not change what it is given, and answers the same again.
func TestDecideIsPure(t *testing.T) {
	l := newLoop(twoGPUs())
	l.run(t, 30*time.Minute, func(i int) float64 { return 50 + 30*math.Sin(float64(i)/10) })
	f, m := l.fleet, l.memory.clone()
	seen := Seen{At: l.now.Add(time.Minute), Rate: 130, Latency: time.Second}
	p1, m1, err1 := Decide(&f, seen, l.memory, Config{})
	if diff := cmp.Diff(m, l.memory); diff != "" {
		t.Errorf("the memory has changed:\n%s", diff)
	}
	p2, m2, err2 := Decide(&f, seen, l.memory, Config{})
	if diff := cmp.Diff(p1, p2) + cmp.Diff(m1, m2); diff != "" || err1 != nil || err2 != nil {
		t.Error(diff, err1, err2)
	}
}

// Elastic jobs give devices back two minutes before a fleet needs them. So what a steady rise needs is told for at most two minutes later, and that a
// minute before the fleet grows at the latest.
func TestTellsLaterBeforeItGrows(t *testing.T) {
	f := twoGPUs()
	f.Variants = f.Variants[:1]
	l := newLoop(f)
	soon := map[int]time.Time{} // when so many replicas were first told for at most two minutes later
	grown := 0
	for i := range 4 * 60 {
		before := l.sizes()[0]
		must.OK(t, l.step(20+float64(i)/4))
		for n := before + 1; n <= l.sizes()[0]; n++ {
			grown++
			if told, ok := soon[n]; !ok || l.now.Sub(told) < time.Minute {
				t.Errorf("the fleet grows to %d at %v, and that was told first at %v", n, l.now, told)
			}
		}
		for _, need := range l.plan.Later {
			if n := need.Replicas[0]; need.In <= 2*time.Minute && soon[n].IsZero() {
				soon[n] = l.now
			}
		}
	}
	if grown != 1 {
		t.Errorf("the fleet grew %d times; it should have grown from 1 to 2", grown)
	}
}

// TestNoCliff: near the edge of a promise, a learned slowdown that differs by a hundredth does not change the size by more than twice, and none asks for more
// than twice of what the declaration does.
func TestNoCliff(t *testing.T) {
	f := Fleet{Name: "f", Objective: Proportional, Promise: Promise{Within: 31800 * time.Microsecond, Quantile: .99}, Variants: []Variant{{
		Name: "v", Replica: Replica{Rate: 94, Time: 10600 * time.Microsecond, Variation: .1}, Cost: 10, Least: 1, Most: 1000, Load: 25 * time.Second, Wanted: 3, Ready: 3, Warm: 3, Part: 1,
		Measured: Measured{Arrivals: math.NaN()},
	}}}
	sizes := map[int]int{}
	for percent := 100; percent <= 200; percent++ {
		p, _ := decided(t, &f, Seen{At: midnight, Rate: 150}, &Memory{Variants: map[string]*VariantMemory{"v": Learn(float64(percent) / 100)}})
		if sizes[percent] = p.Variants[0].Replicas; percent > 100 && sizes[percent] > 2*sizes[percent-1] || sizes[percent] > 2*sizes[100] {
			t.Errorf("at %d %% of the declared time there are %d replicas, at one less %d, at 100 %d", percent, sizes[percent], sizes[percent-1], sizes[100])
		}
	}
}
