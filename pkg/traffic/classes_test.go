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

// twoClasses has short requests as twoGPUs has them, and long ones: 10 a second on an a100, which are 5.4 within the promise, and 4 on a t4, which
// never are. So a t4, which costs a tenth of an a100, is for short ones.
func twoClasses() Fleet {
	f := twoGPUs()
	f.Variants[1].Cost = 1
	f.Classes = []Class{
		{Name: "short", Replicas: []Replica{single(50), single(10)}, Parts: []float64{1, 0}},
		{Name: "long", Replicas: []Replica{single(10), single(4)}, Parts: []float64{1, 0}},
	}
	return f
}

// classLoop is a loop of a fleet with classes.
type classLoop struct{ *loop }

func (l classLoop) step(rates ...float64) error {
	f := &l.fleet
	for i := range f.Variants {
		replicas, weights := make([]Replica, len(rates)), make([]float64, len(rates))
		for k, r := range rates {
			f.Classes[k].Rate, replicas[k], weights[k] = r, f.Classes[k].Replicas[i], r*f.Classes[k].Parts[i]
		}
		if f.Variants[i].Part = 0; sumOf(weights) > 0 {
			f.Variants[i].Replica, f.Variants[i].Part = blend(replicas, weights), sumOf(weights)/sumOf(rates)
		}
	}
	err := l.loop.step(sumOf(rates))
	if err == nil {
		for k := range rates {
			f.Classes[k].Parts = l.plan.Classes[k]
		}
	}
	return err
}

func (l classLoop) run(t *testing.T, span time.Duration, rates ...float64) {
	t.Helper()
	for range int(span / (15 * time.Second)) {
		must.OK(t, l.step(rates...))
	}
}

func nearly() cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })
}

// A fleet of short requests grows by t4, which are cheaper where the one a100 is busy with long ones: of 3.3 expected long ones a second, for which the
// a100 is 0.61 full, and 44 short ones. The t4 get no long ones. With more long ones an a100 comes; when they are gone, it leaves after the patience.
func TestClassesGoWhereTheyAreServedBest(t *testing.T) {
	l := classLoop{newLoop(twoClasses())}
	l.run(t, 20*time.Minute, 40, 3)
	long := l.plan.Classes[1]
	if got := l.sizes(); got[0] != 1 || got[1] < 3 || long[0] != 1 || l.plan.Classes[0][1] < .5 {
		t.Fatalf("at 40 and 3: %v, %v", got, l.plan.Classes)
	}
	before := l.sizes()
	l.run(t, 5*time.Minute, 40, 8)
	if got := l.sizes(); got[0] < 2 {
		t.Fatalf("at 40 and 8: %v", got)
	}
	l.run(t, 40*time.Minute, 40, 3)
	if got := l.sizes(); got[0] != before[0] || got[1] < before[1] || got[1] > before[1]+1 { // one may be spare
		t.Fatalf("at 40 and 3 again: %v, before %v", got, before)
	}
	if got := l.plan.Variants[1].Capacity; math.Abs(got-5.15) > .01 {
		t.Errorf("a t4 serves %v", got)
	}
}

// The demand of each class is remembered: a mix that was there within the patience keeps its replicas, although the sum has not changed.
func TestClassesAreRememberedApart(t *testing.T) {
	l := classLoop{newLoop(twoClasses())}
	l.run(t, 20*time.Minute, 10, 20)
	before := l.sizes()
	l.run(t, 4*time.Minute, 25, 5)
	if got := l.sizes(); got[0] < before[0] {
		t.Errorf("after 4 minutes %v of %v are left", got, before)
	}
	l.run(t, 30*time.Minute, 25, 5)
	if got := l.sizes(); got[0] >= before[0] {
		t.Errorf("after half an hour there are %v, before %v", got, before)
	}
}

// The rate of one class is unknown: all stays, and nobody gets requests of another class.
func TestUnknownClass(t *testing.T) {
	l := classLoop{newLoop(twoClasses())}
	l.run(t, 20*time.Minute, 40, 3)
	sizes, parts := l.sizes(), l.plan.Classes
	must.OK(t, l.step(40, math.NaN()))
	if diff := cmp.Diff(sizes, l.sizes()); diff != "" || l.plan.Reason != NoMetrics {
		t.Errorf("%s %s", l.plan.Reason, diff)
	}
	if diff := cmp.Diff(parts, l.plan.Classes, nearly()); diff != "" {
		t.Error(diff)
	}
	f := l.fleet
	f.Classes[1].Rate = math.NaN()
	if plan, _ := decided(t, &f, Seen{At: l.now.Add(time.Minute), Rate: 43}, l.memory); plan.Reason != NoMetrics {
		t.Errorf("with the rate of all requests: %s", plan.Reason)
	}
}

// The measurements of a variant are of the mix that it gets. One that is twice as slow for all classes serves less of each.
func TestSlowdownOfClasses(t *testing.T) {
	f := twoClasses()
	f.Variants[0].Warm = 1
	f.Classes[0].Rate, f.Classes[1].Rate = 10, 1
	declared, _ := decided(t, &f, Seen{At: midnight, Rate: 11}, &Memory{})
	mix := blend([]Replica{single(50), single(10)}, []float64{10, 1}).Slowed(2)
	l, _ := mix.At(11)
	f.Variants[0].Measured = Measured{Arrivals: 11, Latency: l.Quantile(.99), Quantile: .99}
	slower, m := declared, &Memory{}
	for i := range 30 {
		slower, m = decided(t, &f, Seen{At: midnight.Add(time.Duration(i) * time.Minute), Rate: 11}, m)
	}
	near(t, "the slowdown after half an hour", m.Variants["a100"].slowdown(), 2, .15)
	if got, before := slower.Variants[0].Capacity, declared.Variants[0].Capacity; got > before/1.7 || got <= 0 {
		t.Errorf("it serves %v, before %v", got, before)
	}
}

// A guard of 2 doubles the demand of all classes. A variant that answers errors counts for nothing, and the status says what the replicas serve of the
// mix: one a100 is full with 40.3 requests a second of 10 : 1.
func TestDemandOfClasses(t *testing.T) {
	f := twoClasses()
	f.Variants[0].Warm, f.Variants[0].Most, f.Variants[1].Fails = 1, 1, true
	f.Classes[0].Rate, f.Classes[1].Rate = 10, 1
	plan, _ := decided(t, &f, Seen{At: midnight, Rate: 11}, &Memory{})
	more, _ := decided(t, &f, Seen{At: midnight, Rate: 11, Latency: 2 * time.Second}, &Memory{Guard: mostGuard})
	near(t, "the demand", plan.Demand, 12.1, 1e-9)
	near(t, "the demand with the guard", more.Demand, 24.2, 1e-9)
	load := 10/(50-5.249/.95) + 1/(10-5.249/.95) // as in TestLoadsOf, for 0.95 of the promise
	near(t, "the capacity", plan.Capacity, 11/load, 1e-2)
	if plan.Variants[1].Capacity != 0 {
		t.Errorf("the t4 serves %v", plan.Variants[1].Capacity)
	}
}

// Between two minutes a class that gets more requests is divided anew.
func TestClassesWithinAMinute(t *testing.T) {
	f := twoClasses()
	f.Variants[0].Warm = 1
	f.Variants[1].Wanted, f.Variants[1].Ready, f.Variants[1].Warm = 4, 4, 4
	f.Classes[0].Rate, f.Classes[1].Rate = 10, .1
	plan, m := decided(t, &f, Seen{At: midnight, Rate: 10.1}, &Memory{})
	f.Classes[0].Parts, f.Classes[1].Parts = plan.Classes[0], plan.Classes[1]
	f.Classes[1].Rate = 4
	if plan, _ = decided(t, &f, Seen{At: midnight.Add(15 * time.Second), Rate: 14}, m); plan.Classes[0][1] < .99 {
		t.Errorf("%v", plan.Classes)
	}
}

// A class of which more arrive than expected grows the fleet at once, and not a minute later.
func TestGrowsForAClassWithinAMinute(t *testing.T) {
	f := twoClasses()
	f.Classes[0].Rate, f.Classes[1].Rate = 10, 2
	before, m := decided(t, &f, Seen{At: midnight, Rate: 12}, &Memory{})
	for i := range f.Variants {
		f.Variants[i].Wanted = before.Variants[i].Replicas
	}
	f.Classes[1].Rate = 12
	after, _ := decided(t, &f, Seen{At: midnight.Add(15 * time.Second), Rate: 22}, m)
	if after.Variants[0].Replicas <= before.Variants[0].Replicas || after.Reason != Grows {
		t.Errorf("%s: %+v, before %+v", after.Reason, after.Variants, before.Variants)
	}
}

// While no a100 is ready, a t4 takes long requests although they are late; an a100 that is ready again gets them in a few decisions.
func TestClassWithoutItsVariant(t *testing.T) {
	f := twoClasses()
	f.Variants[0].Ready, f.Variants[0].Warm, f.Variants[1].Wanted, f.Variants[1].Ready, f.Variants[1].Warm = 0, 0, 4, 4, 4
	f.Classes[0].Rate, f.Classes[1].Rate = 10, .1
	plan, memory := decided(t, &f, Seen{At: midnight, Rate: 10.1}, &Memory{})
	if diff := cmp.Diff([][]float64{{0, 1}, {0, 1}}, plan.Classes); diff != "" {
		t.Error(diff)
	}
	f.Variants[0].Ready, f.Variants[0].Warm = 1, 1
	f.Classes[0].Parts, f.Classes[1].Parts = plan.Classes[0], plan.Classes[1]
	if plan, _ = decided(t, &f, Seen{At: midnight.Add(time.Minute), Rate: 10.1}, memory); plan.Classes[1][0] != 1 {
		t.Errorf("with an a100 again: %v", plan.Classes)
	}
	f.Variants[0].Fails, f.Variants[1].Fails = true, true
	if plan, _ = decided(t, &f, Seen{At: midnight.Add(2 * time.Minute), Rate: 10.1}, memory); plan.Reason != AllFail || sumOf(plan.Classes[1]) != 0 {
		t.Errorf("when all fail: %s %v", plan.Reason, plan.Classes)
	}
}

// No part of a class changes by more than the bound, unless that overloads a variant.
func TestShiftOfClasses(t *testing.T) {
	f := twoClasses()
	f.Variants[1].Wanted, f.Variants[1].Ready, f.Variants[1].Warm = 4, 4, 4
	f.Variants[0].Warm = 1
	f.Classes[0].Rate, f.Classes[1].Rate = 10, .1
	plan, _ := decided(t, &f, Seen{At: midnight, Rate: 10.1}, &Memory{})
	near(t, "the part of the t4", plan.Classes[0][1], .2, 1e-9)
	f.Classes[0].Rate, f.Classes[1].Rate = 20, 4
	if plan, _ = decided(t, &f, Seen{At: midnight, Rate: 24}, &Memory{}); plan.Classes[0][1] < .5 {
		t.Errorf("with an overload: %v", plan.Classes)
	}
}

// Long requests that no variant serves in time: the fleet says which promise it could keep, and serves them.
func TestClassPromiseTooShort(t *testing.T) {
	f := twoClasses()
	f.Classes[1].Replicas, f.Variants[0].Warm = []Replica{single(4), single(2)}, 1
	f.Classes[0].Rate, f.Classes[1].Rate = 10, 1
	plan, _ := decided(t, &f, Seen{At: midnight, Rate: 11}, &Memory{})
	if plan.Reason != PromiseTooShort || plan.Best.Round(time.Millisecond) != 1151*time.Millisecond || plan.Classes[1][0] != 1 {
		t.Errorf("%s, best %v, %v", plan.Reason, plan.Best, plan.Classes)
	}
}

// A promise that is broken although the replicas should have kept it for the mix that arrives makes the guard ask for more.
func TestGuardOfClasses(t *testing.T) {
	f := twoClasses()
	f.Variants[0].Warm = 1
	f.Classes[0].Rate, f.Classes[1].Rate = 10, 2
	slow := func(minute int) Seen {
		return Seen{At: midnight.Add(time.Duration(minute) * time.Minute), Rate: 12, Latency: 2 * time.Second}
	}
	minutes := func() (m *Memory) {
		m = &Memory{}
		for i := range 3 {
			_, m = decided(t, &f, slow(i), m)
		}
		return m
	}
	if m := minutes(); m.Guard != 1.1 {
		t.Errorf("2 long ones are within the promise, and the guard is %v", m.Guard)
	}
	f.Classes[0].Rate, f.Classes[1].Rate = 4, 8
	if m := minutes(); m.Guard != 1 {
		t.Errorf("8 long ones are too many, and the guard is %v", m.Guard)
	}
}

// A class that the fleet no longer has is forgotten; the given memory is not changed.
func TestMemoryOfClasses(t *testing.T) {
	f := twoClasses()
	f.Classes[0].Rate, f.Classes[1].Rate = 10, 2
	_, m := decided(t, &f, Seen{At: midnight, Rate: 12}, &Memory{})
	f.Classes[0].Rate = 20
	_, next := decided(t, &f, Seen{At: midnight.Add(time.Minute), Rate: 22}, m)
	if got := len(m.Classes["short"].Recent); got != 1 || len(m.Demands) != 1 || len(next.Classes["short"].Recent) != 2 {
		t.Errorf("the memory that was given has %d minutes: %+v", got, m)
	}
	f.Classes = nil
	if _, m := decided(t, &f, Seen{At: midnight.Add(2 * time.Minute), Rate: 12}, next); len(m.Classes) != 0 {
		t.Errorf("without classes it remembers %v", m.Classes)
	}
}

func TestClassesAreChecked(t *testing.T) {
	for _, test := range []struct {
		edit func(f *Fleet)
		want string
	}{
		{func(f *Fleet) { f.Objective = MeanOptimal }, `objective "mean-optimal": with classes it must be "proportional"`},
		{func(f *Fleet) { f.Classes[1].Name = "short" }, `class "short": two classes have this name`},
		{func(f *Fleet) { f.Classes[1].Parts = nil }, `class "long": it has 2 replicas and 0 parts, and the fleet has 2 variants`},
		{func(f *Fleet) { f.Classes[1].Replicas = make([]Replica, 2) }, `class "long": no variant serves it`},
		{func(f *Fleet) { f.Classes[1].Replicas[1].Time = 0 }, `class "long", variant "t4": time 0s: legal are times above 0 and up to 24h0m0s`},
	} {
		f := twoClasses()
		test.edit(&f)
		if err := f.Validate(); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}

// At a steady rate of each class a fleet comes to rest: its sizes change by single replicas only, its parts hardly, and the promise holds.
func TestPropertyRestOfClasses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := classLoop{newLoop(twoClasses())}
		l.every = time.Minute
		rates := []float64{rapid.Float64Range(0, 130).Draw(t, "short"), rapid.Float64Range(0, 60).Draw(t, "long")}
		noise := rapid.Float64Range(0, .05).Draw(t, "noise")
		step := func(i int) {
			before := l.sizes()
			factor := 1 + noise*math.Sin(float64(i)*2.4)
			must.OK(t, l.step(rates[0]*factor, rates[1]*factor))
			checkStep(t, l.loop, before)
		}
		for i := range 65 {
			step(i)
		}
		l.late = 0
		changes, parts := 0, l.plan.Classes
		for i := range 20 {
			before := l.sizes()
			step(i)
			if !slices.Equal(before, l.sizes()) {
				changes++
			}
		}
		if changes > 6 || l.late > 1 {
			t.Fatalf("at %v %d sizes changed in twenty minutes, and the promise was broken %d times: %+v", rates, changes, l.late, l.plan)
		}
		for k := range parts {
			if moved := math.Abs(parts[k][0] - l.plan.Classes[k][0]); changes == 0 && moved > .05+2*noise {
				t.Fatalf("at %v the parts went from %v to %v", rates, parts, l.plan.Classes)
			}
		}
	})
}
