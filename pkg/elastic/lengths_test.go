package elastic_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

func newLengths(t testing.TB) *elastic.Lengths {
	t.Helper()
	l, err := elastic.NewLengths()
	must.OK(t, err)
	return l
}

// end lets jobs alike end, each after so many seconds of GPU time of its workers.
func end(t testing.TB, l *elastic.Lengths, a elastic.Alike, jobs int, served float64) {
	t.Helper()
	for range jobs {
		must.OK(t, l.Ended(a, elastic.Had{Served: served}, false))
	}
}

func remaining(t testing.TB, l *elastic.Lengths, a elastic.Alike, served float64) float64 {
	t.Helper()
	seconds, err := l.Remaining(a, elastic.Had{Served: served})
	must.OK(t, err)
	return seconds
}

// near reports whether a value is within a fifth of another one: bins of lengths are about 7 % wide, and the prior draws at them.
func near(got, want float64) bool { return got > .8*want && got < 1.2*want }

func TestLengths(t *testing.T) {
	short := elastic.Alike{Namespace: "ns", Workload: "ns/short", Least: 2, Slots: 10}
	long := elastic.Alike{Namespace: "ns", Workload: "ns/long", Least: 2, Slots: 10}
	l := newLengths(t)
	if got := remaining(t, l, short, 2*3600); !near(got, 3600) {
		t.Errorf("without a job that has ended, one that had its fewest workers for an hour takes %v s more, want as long again", got)
	}
	end(t, l, short, 100, 2*600)
	end(t, l, long, 100, 2*36_000)
	for _, test := range []struct {
		name         string
		of           elastic.Alike
		served, want float64
	}{
		{"a short job that waits", short, 0, 600},
		{"a long job that waits", long, 0, 36_000},
		{"a short job in the middle", short, 2 * 300, 300},
		{"a long job with twice its fewest workers for a quarter of the time", long, 4 * 9_000, 18_000},
		{"a job that outlived all of its kind", long, 2 * 360_000, 360_000},
	} {
		if got := remaining(t, l, test.of, test.served); !near(got, test.want) {
			t.Errorf("%s takes %v s more, want about %v", test.name, got, test.want)
		}
	}
	for range 1000 { // one that was stopped at five minutes might have run for long
		must.OK(t, l.Ended(short, elastic.Had{Served: 2 * 300}, true))
	}
	if got := remaining(t, l, short, 0); got < 500 {
		t.Errorf("after many that were stopped, a job takes %v s, want about 600", got)
	}
}

// The progress that a job reports counts for much, and for nearly all once such reports were right before. If they were wrong, it counts as
// they were.
func TestLengthsByProgress(t *testing.T) {
	told := elastic.Alike{Namespace: "ns", Workload: "ns/told", Least: 2, Slots: 10}
	after := func(jobs int, done float64) *elastic.Lengths { // that took 5 minutes to 2 hours 40 minutes, and had said so much last
		l := newLengths(t)
		for i := range jobs {
			must.OK(t, l.Ended(told, elastic.Had{Served: 2 * 300 * math.Exp2(float64(i%6)), Done: done}, false))
		}
		return l
	}
	for _, test := range []struct {
		name        string
		l           *elastic.Lengths
		done        float64
		least, most float64
	}{
		{"no job has ended", after(0, 0), .25, 18_000, 36_000},
		{"jobs have ended that said nothing", after(100, 0), .25, 15_000, 36_000},
		{"jobs were right", after(100, 1), .25, 25_000, 30_000},
		{"jobs ended with half of their work", after(200, .5), .25, 7_000, 13_000},
		{"jobs were right, and this one says nothing", after(100, 1), 0, 100, 9_000},
	} {
		got, err := test.l.Remaining(told, elastic.Had{Served: 2 * 9_000, Done: test.done})
		if err != nil || got < test.least || got > test.most {
			t.Errorf("%s: a job that has done %v in 9000 s takes %v s more, want %v to %v: %v", test.name, test.done, got, test.least, test.most, err)
		}
	}
}

// TestLengthsLaw: each prediction is a legal Job.Remaining, whatever ended.
func TestLengthsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, err := elastic.NewLengths()
		must.OK(t, err)
		draw := func() (elastic.Alike, elastic.Had) {
			return elastic.Alike{
				Namespace: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "namespace"),
				Workload:  rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "workload"),
				Least:     rapid.IntRange(1, elastic.MaxWorkers).Draw(t, "least"), Slots: rapid.IntRange(0, 80).Draw(t, "slots"),
			}, elastic.Had{Served: rapid.Float64Range(0, 1e9).Draw(t, "served"), Done: rapid.Float64Range(0, 1).Draw(t, "done")}
		}
		for range rapid.IntRange(0, 20).Draw(t, "ended") {
			a, had := draw()
			must.OK(t, l.Ended(a, had, rapid.Bool().Draw(t, "stopped")))
		}
		a, had := draw()
		got, err := l.Remaining(a, had)
		must.OK(t, err)
		j := elastic.Job{Name: "ns/job", Sizes: []int{1}, Worker: worker(10), Remaining: got}
		if err := j.Validate(); got < 1 || err != nil {
			t.Fatalf("remaining %v s: %v", got, err)
		}
	})
}

func TestLengthsRefuse(t *testing.T) {
	l := newLengths(t)
	for want, test := range map[string]struct {
		least int
		had   elastic.Had
	}{
		"at least 0 workers, legal is 1 to 65536":     {0, elastic.Had{Served: 1}},
		"at least 65537 workers, legal is 1 to 65536": {elastic.MaxWorkers + 1, elastic.Had{Served: 1}},
		"-1 seconds, legal is 0 to":                   {1, elastic.Had{Served: -1}},
		"-0.1 of the work is done, legal is 0 to 1":   {1, elastic.Had{Served: 1, Done: -.1}},
		"1.1 of the work is done, legal is 0 to 1":    {1, elastic.Had{Served: 1, Done: 1.1}},
		"NaN of the work is done, legal is 0 to 1":    {1, elastic.Had{Served: 1, Done: math.NaN()}},
	} {
		a := elastic.Alike{Least: test.least}
		_, asked := l.Remaining(a, test.had)
		for _, err := range []error{asked, l.Ended(a, test.had, false)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		}
	}
}

func TestNeedsRemaining(t *testing.T) {
	for _, policy := range elastic.Policies() {
		if got := (elastic.Config{Policy: policy}).NeedsRemaining(); got != (policy == "elastic-srjf") {
			t.Errorf("%s needs what remains: %v", policy, got)
		}
	}
	if (elastic.Config{}).NeedsRemaining() {
		t.Error("the default needs what remains")
	}
}
