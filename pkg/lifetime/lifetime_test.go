package lifetime

import (
	"math"
	"strings"
	"testing"
)

// The finest group of a pod decides: finer groups are believed as soon as they have some pods.
func TestFinerGroupsDecide(t *testing.T) {
	l := learner(t, Defaults())
	for range 50 {
		observe(t, l,
			Observation{Pod: Pod{User: "ann", Size: 1000}, Length: 100},
			Observation{Pod: Pod{User: "ann", Size: 8000}, Length: 10_000},
			Observation{Pod: Pod{User: "bob", Size: 1000}, Length: 400},
			Observation{Pod: Pod{User: "bob", Size: 1000, Workload: "bert"}, Length: 50_000},
		)
	}
	for _, c := range []struct {
		name string
		pod  Pod
		want float64
	}{
		{"user and size", Pod{User: "ann", Size: 1000}, 100},
		{"another size", Pod{User: "ann", Size: 8000}, 10_000},
		{"workload", Pod{User: "bob", Size: 1000, Workload: "bert"}, 50_000},
		{"a stranger's size", Pod{User: "eve", Size: 8000}, 10_000},
	} {
		curve := predict(t, l, c.pod, 0)
		if got := curve.Quantile(.5); got < c.want/1.3 || got > c.want*1.3 {
			t.Errorf("%s: the median is %v, want about %v", c.name, got, c.want)
		}
	}
}

// A stopped pod says that pods run for longer, not that they end.
func TestStoppedPods(t *testing.T) {
	ended, stopped := learner(t, Defaults()), learner(t, Defaults())
	for i := range 40 {
		o := Observation{Pod: Pod{User: "ann"}, Length: 100}
		if o.Stopped = i%2 == 0; o.Stopped {
			observe(t, stopped, o)
			continue
		}
		o.Length = 1000
		observe(t, stopped, o)
		observe(t, ended, o)
	}
	a, b := predict(t, stopped, Pod{User: "ann"}, 0), predict(t, ended, Pod{User: "ann"}, 0)
	if got := a.Survival(500); got < b.Survival(500)-.05 {
		t.Errorf("%v reach 500 s, and %v without the stopped ones", got, b.Survival(500))
	}
}

// Words count as much as they were right.
func TestWords(t *testing.T) {
	l := learner(t, Defaults())
	for i := range 200 {
		length := 100 * math.Exp2(float64(i%10))
		observe(t, l,
			Observation{Pod: Pod{User: "ann", Declared: length}, Length: length},
			Observation{Pod: Pod{User: "bob", Declared: 1e6}, Length: length},
			Observation{Pod: Pod{User: "eve", Projected: length}, Length: 2 * length},
		)
	}
	for _, c := range []struct {
		name        string
		pod         Pod
		age         float64
		least, most float64
	}{
		{"right", Pod{User: "ann", Declared: 20_000}, 0, 16_000, 25_000},
		{"right, at an age", Pod{User: "ann", Declared: 20_000}, 15_000, 2_000, 8_000},
		{"always too much", Pod{User: "bob", Declared: 1e6}, 0, 1_000, 10_000},
		{"progress that slows down", Pod{User: "eve", Projected: 5_000}, 0, 8_000, 13_000},
	} {
		curve := predict(t, l, c.pod, c.age)
		if got := curve.Quantile(.5); got < c.least || got > c.most {
			t.Errorf("%s: the median is %v, want %v to %v", c.name, got, c.least, c.most)
		}
	}
}

// The declaration of a user weighs by the user's own pods that declared something, not by those of others.
func TestWordsOfFewPods(t *testing.T) {
	l := learner(t, Defaults())
	for i := range 300 {
		length := 100 * math.Exp2(float64(i%10))
		observe(t, l, Observation{Pod: Pod{User: "bob", Declared: length}, Length: length})
	}
	for range 100 {
		observe(t, l, Observation{Pod: Pod{User: "ann"}, Length: 100})
	}
	observe(t, l, Observation{Pod: Pod{User: "ann", Declared: 100}, Length: 100})
	curve := predict(t, l, Pod{User: "ann", Declared: 1e5}, 0)
	if got := curve.Quantile(.5); got > 1000 {
		t.Errorf("the median is %v, want about 100", got)
	}
}

// A pod of which nothing is known runs for as long again as it has run.
func TestNothingKnown(t *testing.T) {
	curve := predict(t, learner(t, Defaults()), Pod{}, 1000)
	if got := curve.Quantile(.5); math.Abs(got-1000) > 30 {
		t.Errorf("the median is %v, want about 1000", got)
	}
}

func TestBadInput(t *testing.T) {
	l := learner(t, Defaults())
	for _, c := range []struct {
		name string
		do   func() error
		want string
	}{
		{"length", func() error { return l.Observe(Observation{Length: -1}) }, "length -1 seconds, legal is 0 to 1073741824"},
		{"NaN", func() error { return l.Observe(Observation{Length: math.NaN()}) }, "length NaN seconds"},
		{"declared", func() error { return l.Observe(Observation{Pod: Pod{Declared: 1e12}}) }, "declared 1e+12 seconds"},
		{"projected", func() error { _, err := l.Predict(Pod{Projected: -1}, 0); return err }, "projected -1 seconds"},
		{"size", func() error { _, err := l.Predict(Pod{Size: -1}, 0); return err }, "size -1, legal is 0 or more"},
		{"age", func() error { _, err := l.Predict(Pod{}, math.Inf(1)); return err }, "age +Inf seconds"},
		{"strength", func() error { _, err := NewLearner(Config{Memory: 1, Recent: 1, Groups: 99}); return err }, "strength 0, legal is more than 0"},
		{"memory", func() error { _, err := NewLearner(Config{Strength: 1, Memory: 1, Recent: 2, Groups: 99}); return err }, "recent 2 and memory 1"},
		{"groups", func() error { _, err := NewLearner(Config{Strength: 1, Memory: 1, Recent: 1}); return err }, "groups 0, legal is 6 or more"},
	} {
		if err := c.do(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// The example of Rank: with bins, its times are met within a bin.
func TestRank(t *testing.T) {
	l := learner(t, Defaults())
	for i := range 400 {
		either := 100.0
		if i%2 == 0 {
			either = 3
		}
		observe(t, l, Observation{Pod: Pod{User: "either"}, Length: either}, Observation{Pod: Pod{User: "between"}, Length: 20})
	}
	either, between := predict(t, l, Pod{User: "either"}, 0), predict(t, l, Pod{User: "between"}, 0)
	if a, b := either.Rank(), between.Rank(); a > b || either.Mean(1e4) < between.Mean(1e4) || a < 4 || a > 9 || b < 15 || b > 25 {
		t.Errorf("ranks %v and %v, want about 6 and 20, for means of %v and %v", a, b, either.Mean(1e4), between.Mean(1e4))
	}
	later := either.At(10)
	if got := later.Rank(); got < 60 || got > 120 {
		t.Errorf("the rank at 10 s is %v, want about 90", got)
	}
}

// The last pods count more than those before, and long ago counts nothing.
func TestForgetting(t *testing.T) {
	c := Defaults()
	c.Memory = 16
	for _, run := range []struct {
		name  string
		c     Config
		late  int
		least float64
	}{{"the last few of many", Defaults(), 5, .08}, {"all that is remembered", c, 100, .5}} {
		l := learner(t, run.c)
		ann := Pod{User: "ann"}
		for i := range 1000 + run.late {
			length := 100.0
			if i >= 1000 {
				length = 10_000
			}
			observe(t, l, Observation{Pod: ann, Length: length})
		}
		curve := predict(t, l, ann, 0)
		if got := curve.Survival(1000); got < run.least {
			t.Errorf("%s: %v reach 1000 s, want %v or more", run.name, got, run.least)
		}
	}
}

// The example of draw. Pods that are stopped in a later bin have reached this one, and those that are stopped in it count as half.
func TestDraw(t *testing.T) {
	for _, c := range []struct {
		name          string
		here, later   float64
		stopped       float64
		stoppedBefore float64
		want          float64
	}{
		{"ends", 5, 5, 0, 0, (5 + .2) / 12},
		{"stopped in it", 5, 5, 4, 0, (5 + .2) / 14},
		{"stopped before it", 5, 5, 0, 4, (5 + .2) / 12},
	} {
		var s sketch
		s.ended[40], s.stopped[60], s.stopped[40], s.stopped[20] = c.here, c.later, c.stopped, c.stoppedBefore
		var h hazards
		h[40] = .1
		h.draw(&s, 2)
		if math.Abs(h[40]-c.want) > 1e-12 {
			t.Errorf("%s: hazard %v, want %v", c.name, h[40], c.want)
		}
	}
}
