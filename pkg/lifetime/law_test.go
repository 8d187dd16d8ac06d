package lifetime

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/must"
)

func learner(t testing.TB, c Config) *Learner {
	l, err := NewLearner(c)
	must.OK(t, err)
	return l
}

func observe(t must.T, l *Learner, all ...Observation) {
	for _, o := range all {
		must.OK(t, l.Observe(o))
	}
}

func predict(t must.T, l *Learner, p Pod, age float64) Curve {
	c, err := l.Predict(p, age)
	must.OK(t, err)
	return c
}

func pods() *rapid.Generator[Pod] {
	return rapid.Custom(func(t *rapid.T) Pod {
		return Pod{
			User:     rapid.SampledFrom([]string{"", "ann", "bob", "eve"}).Draw(t, "user"),
			Workload: rapid.SampledFrom([]string{"", "bert", "ncf"}).Draw(t, "workload"),
			Model:    rapid.SampledFrom([]string{"", "A100"}).Draw(t, "model"),
			Size:     rapid.SampledFrom([]int{0, 500, 8000}).Draw(t, "size"),
			Declared: rapid.SampledFrom([]float64{0, 60, 1e5}).Draw(t, "declared"), Projected: rapid.SampledFrom([]float64{0, 90}).Draw(t, "projected"),
		}
	})
}

func seconds() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64Range(0, longest), rapid.Custom(func(t *rapid.T) float64 {
		return math.Exp2(rapid.Float64Range(-3, 30).Draw(t, "octave"))
	}), rapid.SampledFrom([]float64{0, 1, 60, longest}))
}

func histories(most int) *rapid.Generator[[]Observation] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Observation {
		return Observation{Pod: pods().Draw(t, "pod"), Length: seconds().Draw(t, "length"), Stopped: rapid.Bool().Draw(t, "stopped")}
	}), 0, most)
}

// The curve is a survival curve, and its quantiles invert it, whatever was learned.
func TestCurveLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := NewLearner(Defaults())
		observe(t, l, histories(40).Draw(t, "history")...)
		c := predict(t, l, pods().Draw(t, "pod"), seconds().Draw(t, "age"))
		if c.Survival(0) != 1 {
			t.Fatalf("survival of 0 is %v", c.Survival(0))
		}
		times := slices.Sorted(slices.Values(rapid.SliceOfN(seconds(), 2, 10).Draw(t, "times")))
		for i := 1; i < len(times); i++ {
			before, after := c.Survival(times[i-1]), c.Survival(times[i])
			if !(after >= 0 && after <= before+1e-12 && before <= 1+1e-12) {
				t.Fatalf("survival goes from %v at %v to %v at %v", before, times[i-1], after, times[i])
			}
			slack := 1e-9 * (1 + c.age + times[i])
			if a, b := c.Mean(times[i-1]), c.Mean(times[i]); !(a >= 0 && a <= b+slack && b <= times[i]+slack) {
				t.Fatalf("means up to %v and %v are %v and %v", times[i-1], times[i], a, b)
			}
		}
		last := 0.0
		for p := .05; p < 1; p += .05 {
			q := c.Quantile(p)
			if q < last {
				t.Fatalf("quantile %v is %v, less than %v", p, q, last)
			}
			last = q
			// A pod of at most a second falls into the first bin, within which the curve tells nothing apart.
			if got := c.Survival(q); c.age+q > 2 && q > 1e-3*c.age && math.Abs(got-(1-p)) > 1e-6 {
				t.Fatalf("survival at quantile %v, which is %v, is %v", p, q, got)
			}
		}
	})
}

// A curve at an age is the curve at the start, given that the pod reached the age.
func TestCurvesAgreeOverAges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := NewLearner(Defaults())
		observe(t, l, histories(40).Draw(t, "history")...)
		p, age, later := pods().Draw(t, "pod"), seconds().Draw(t, "age"), seconds().Draw(t, "later")
		start, then := predict(t, l, p, 0), predict(t, l, p, age)
		want := start.Survival(age+later) / start.Survival(age)
		if got := then.Survival(later); math.Abs(got-want) > 1e-9 {
			t.Fatalf("survival is %v, want %v", got, want)
		}
	})
}

// However many pods end, the learner keeps no more groups than it may, and the sums are those of the groups that it keeps.
func TestLearnerIsBounded(t *testing.T) {
	c := Defaults()
	c.Groups = 16
	l := learner(t, c)
	for i := range 500 {
		observe(t, l, Observation{Pod: Pod{User: fmt.Sprint(i % 97), Workload: fmt.Sprint(i), Size: 1 + i%5, Declared: 9}, Length: float64(i)})
		if len(l.groups) > 16 || len(l.sums) > 16 || len(l.members) != len(l.sums) || len(l.owned) > 16 {
			t.Fatalf("%d groups, %d sums, %d counts of members, %d of users", len(l.groups), len(l.sums), len(l.members), len(l.owned))
		}
	}
	for k, s := range l.sums {
		want := 0.0
		for of, g := range l.groups {
			of.by, of.user = of.by&^byUser, ""
			if of == k {
				want += g.past.pods()
			}
		}
		if got := s.pods(); math.Abs(got-want) > 1e-6 {
			t.Errorf("sum of %+v has %v pods, its groups have %v", k, got, want)
		}
	}
}

// Pods of one user that all differ displace nothing of a user who has fewer groups.
func TestFloodOfUnlikePods(t *testing.T) {
	c := Defaults()
	c.Groups = 64
	l, calm := learner(t, c), Pod{User: "calm", Workload: "bert", Size: 1}
	for range 20 {
		observe(t, l, Observation{Pod: calm, Length: 3600})
	}
	owned := func() (count int) {
		for k := range l.groups {
			if k.user == "calm" {
				count++
			}
		}
		return count
	}
	before := owned()
	for i := range 1000 {
		observe(t, l, Observation{Pod: Pod{User: "flood", Workload: fmt.Sprint(i), Size: 1}, Length: 1})
	}
	if after := owned(); before != 3 || after != before || l.Known(calm) != 20 {
		t.Errorf("%d groups of the calm user before, %d after, %d pods known", before, after, l.Known(calm))
	}
	if l.owned["calm"] != before || l.owned["calm"]+l.owned["flood"] != len(l.groups) {
		t.Errorf("counts of groups are %v of %d", l.owned, len(l.groups))
	}
}

// A flood of one user weighs as Memory pods in the predictions of others, and a known user hardly moves.
func TestFloodOfOneUser(t *testing.T) {
	c := Defaults()
	c.Memory = 64
	l := learner(t, c)
	ann := Pod{User: "ann", Size: 1000}
	for range 64 {
		observe(t, l, Observation{Pod: ann, Length: 3600})
	}
	flood := func(n int) {
		for range n {
			observe(t, l, Observation{Pod: Pod{User: "eve", Size: 1000}, Length: 5})
		}
	}
	before := predict(t, l, ann, 0)
	flood(1000)
	stranger := predict(t, l, Pod{User: "bob", Size: 1000}, 0)
	flood(100_000)
	after, later := predict(t, l, ann, 0), predict(t, l, Pod{User: "bob", Size: 1000}, 0)
	if a, b := before.Survival(1800), after.Survival(1800); a-b > .02 {
		t.Errorf("ann's survival of half an hour falls from %v to %v", a, b)
	}
	if a, b := stranger.Survival(1800), later.Survival(1800); a < .3 || math.Abs(a-b) > 1e-6 {
		t.Errorf("a stranger's survival of half an hour is %v after 1,000 pods of eve, and %v after 101,000", a, b)
	}
}

// One pod moves the hazard of no bin by more than its weight beside Strength at each level.
func TestOneOutlier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := NewLearner(Defaults())
		user := Pod{User: "ann", Size: 1000}
		for range 100 {
			observe(t, l, Observation{Pod: user, Length: rapid.Float64Range(1000, 2000).Draw(t, "length")})
		}
		before := predict(t, l, user, 0)
		observe(t, l, Observation{Pod: user, Length: seconds().Draw(t, "outlier")})
		after := predict(t, l, user, 0)
		// Recent is 3: the last pod weighs 1 of 3, and these 3 weigh beside Strength 8.
		for _, at := range []float64{500, 1000, 1500, 2000, 4000} {
			if a, b := before.Survival(at), after.Survival(at); math.Abs(a-b) > .2 {
				t.Fatalf("survival of %v s goes from %v to %v", at, a, b)
			}
		}
	})
}

// The order in which pods of unlike users end does not matter to them.
func TestOrderOfUsers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := histories(30).Draw(t, "history")
		sorted := slices.Clone(all)
		slices.SortStableFunc(sorted, func(a, b Observation) int { return cmp.Compare(a.User, b.User) })
		one, _ := NewLearner(Defaults())
		two, _ := NewLearner(Defaults())
		observe(t, one, all...)
		observe(t, two, sorted...)
		p := pods().Draw(t, "pod")
		a, b := predict(t, one, p, 60), predict(t, two, p, 60)
		for i := range a.reached {
			if math.Abs(a.reached[i]-b.reached[i]) > 1e-9 {
				t.Fatalf("bin %d is reached by %v, and by %v in another order", i, a.reached[i], b.reached[i])
			}
		}
		if again := predict(t, one, p, 60); again != a {
			t.Fatal("the same question got another answer")
		}
	})
}
