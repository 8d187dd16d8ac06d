package elastic_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

// report reports a rate every ten seconds, until a time.
func report(t *testing.T, l *elastic.Learner, from, until int64, workers, hosts int, rate float64) {
	t.Helper()
	for now := from; now < until; now += 10 {
		must.OK(t, l.Report(now, workers, hosts, rate))
	}
}

// TestLearner: a job works at 100 with two workers. It grows to four, loads its state for 30 s, and works at 180. It shrinks
// to two, and works at once.
func TestLearner(t *testing.T) {
	var l elastic.Learner
	report(t, &l, 0, 100, 2, 1, 100)
	report(t, &l, 100, 130, 4, 1, 0)
	report(t, &l, 130, 300, 4, 1, 180)
	if l.Pause != 30 || l.Pauses != 1 {
		t.Errorf("the pause is %v s, the mean of %d, want 30 s, once", l.Pause, l.Pauses)
	}
	report(t, &l, 300, 400, 2, 1, 100)
	if l.Pause != 15 || l.Pauses != 2 {
		t.Errorf("the pause is %v s, the mean of %d, want 15 s of 30 and 0", l.Pause, l.Pauses)
	}
	want := []elastic.Point{{Workers: 2, Hosts: 1, Rate: 100}, {Workers: 4, Hosts: 1, Rate: 180}}
	if diff := cmp.Diff(want, l.Points()); diff != "" {
		t.Errorf("points: %s", diff)
	}
}

// TestLearnerWarmUp: after a change a job that is slow at first at a size that was seen does not count as at work.
func TestLearnerWarmUp(t *testing.T) {
	var l elastic.Learner
	report(t, &l, 0, 100, 4, 2, 100)
	report(t, &l, 100, 200, 2, 1, 60)
	report(t, &l, 200, 240, 4, 2, 10)
	report(t, &l, 240, 300, 4, 2, 100)
	if l.Pause != 20 {
		t.Errorf("the mean pause is %v s, want 20 s of 0 and 40", l.Pause)
	}
	if got := l.Points()[1].Rate; got != 100 {
		t.Errorf("the rate of four workers is %v, want 100", got)
	}
}

func TestLearnerRefuses(t *testing.T) {
	for _, tc := range []struct {
		name           string
		workers, hosts int
		rate           float64
		want           string
	}{
		{"no worker", 0, 1, 1, "0 workers on 1 hosts"},
		{"more hosts than workers", 2, 3, 1, "2 workers on 3 hosts"},
		{"a rate below zero", 2, 1, -1, "legal is 0 or more"},
		{"no number", 2, 1, math.NaN(), "legal is 0 or more"},
		{"infinity", 2, 1, math.Inf(1), "legal is 0 or more"},
		{"ten times too much", 4, 1, 2000, "4 workers report 2000, at most 800 is possible"},
		{"fewer workers and far more", 1, 1, 500, "1 workers report 500, at most 400 is possible"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l elastic.Learner
			report(t, &l, 0, 100, 2, 1, 100)
			points := l.Points()
			err := l.Report(200, tc.workers, tc.hosts, tc.rate)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("says %v, want %q", err, tc.want)
			}
			if diff := cmp.Diff(points, l.Points()); diff != "" {
				t.Errorf("points: %s", diff)
			}
		})
	}
}

// TestLearnerLaw: with reports that err by up to a twentieth, each learned rate is within a twentieth of the true one,
// and the pause is within the time between two reports.
func TestLearnerLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := elastic.Curve{Growth: uniform(t, "growth", .3, .6, .9, 1), Apart: uniform(t, "apart", .5, .9)}
		var l elastic.Learner
		now, every := int64(0), int64(between(t, "every", 1, 20))
		pause := int64(between(t, "pause", 0, 100))
		workers := 0
		for range between(t, "changes", 1, 6) {
			next := between(t, "workers", 1, 16)
			if next == workers {
				continue
			}
			hosts := (next + 3) / 4
			started := now
			if workers > 0 {
				started += pause
			}
			workers = next
			for range 50 {
				rate := 0.0
				if now >= started {
					rate = truth.Rate(workers, hosts) * (1 + float64(between(t, "noise", -5, 5))/100)
				}
				must.OK(t, l.Report(now, workers, hosts, rate))
				now += every
			}
			now = max(now, started+every)
		}
		for _, p := range l.Points() {
			if want := truth.Rate(p.Workers, p.Hosts); math.Abs(p.Rate-want) > .05*want+1e-9 {
				t.Fatalf("%+v was learned, the rate is %v", p, want)
			}
		}
		if l.Pauses > 0 && (l.Pause < float64(pause)-1e-9 || l.Pause >= float64(pause+every)) {
			t.Fatalf("a pause of %v s was learned, it is %d s, reports come every %d s", l.Pause, pause, every)
		}
	})
}

// TestLearnerServers: with one server four workers do 100, with two 190. Each number of servers has a curve of its own, and
// the change of their number is a pause.
func TestLearnerServers(t *testing.T) {
	var l elastic.Learner
	at := func(from, until int64, size elastic.Size, rate float64) {
		for now := from; now < until; now += 10 {
			must.OK(t, l.ReportAt(now, size, rate))
		}
	}
	at(0, 100, elastic.Size{Workers: 4, Hosts: 1, Servers: 1}, 100)
	at(100, 120, elastic.Size{Workers: 4, Hosts: 1, Servers: 2}, 0)
	at(120, 200, elastic.Size{Workers: 4, Hosts: 1, Servers: 2}, 190)
	at(200, 300, elastic.Size{Workers: 4, Hosts: 2, Servers: 2}, 170)
	// Twice the workers are more than eight times as fast as with one server: that says nothing of two servers.
	at(300, 400, elastic.Size{Workers: 8, Hosts: 2, Servers: 2}, 900)
	want := []elastic.CombinationRate{rateOf(4, 1, 100), rateOf(4, 2, 170), rateOf(8, 2, 900)}
	if diff := cmp.Diff(want, l.Combinations()); diff != "" {
		t.Errorf("combinations: %s", diff)
	}
	points := []elastic.Point{{Workers: 4, Hosts: 1, Rate: 190}, {Workers: 4, Hosts: 2, Rate: 170}, {Workers: 8, Hosts: 2, Rate: 900}}
	if diff := cmp.Diff(points, l.Points()); diff != "" {
		t.Errorf("points of two servers: %s", diff)
	}
	if l.Pauses != 2 || l.Pause != 0 { // that of the servers says nothing of what a change of the workers costs
		t.Errorf("%d pauses of %v s in the mean, want two of none", l.Pauses, l.Pause)
	}
	if err := l.ReportAt(400, elastic.Size{Workers: 4, Hosts: 1, Servers: 257}, 1); err == nil || !strings.Contains(err.Error(), "257 servers, legal is 0 to 256") {
		t.Errorf("says %v", err)
	}
}
