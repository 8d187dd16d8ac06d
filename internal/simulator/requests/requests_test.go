package requests_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/requests"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/test/must"
)

// minutes returns a rate for so many minutes.
func minutes(n int, rate float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = rate
	}
	return all
}

// fleetOf returns a fleet whose replicas answer one request at a time, ten a second, in exponential times. It has one replica, unless a test
// changes that.
func fleetOf(within time.Duration, rates []float64) *requests.Fleet {
	return &requests.Fleet{
		Name: "f", Promise: traffic.Promise{Quantile: .99, Within: within}, Replica: traffic.Replica{Rate: 10, Time: 100 * time.Millisecond, Variation: 1},
		Least: 1, Most: 1, Rates: rates, Fixed: true, Every: 10 * time.Second,
	}
}

// play lets a fleet decide every ten seconds until its rates end, with so many replicas that run at a time.
func play(t *testing.T, f *requests.Fleet, running func(at time.Duration) int) (*requests.Run, []int) {
	t.Helper()
	r, err := requests.New(f, 1)
	must.OK(t, err)
	var sizes []int
	for at := time.Duration(0); at <= f.Lasts(); at += 10 * time.Second {
		n := running(at)
		if n == 0 {
			continue
		}
		want, _ := r.Size(at, n)
		sizes = append(sizes, want)
	}
	return r, sizes
}

func one(time.Duration) int { return 1 }

// TestQueue: with five exponential requests a second a hundredth takes longer than 921 ms, since ln 100 ÷ (10 − 5) is 0.921.
func TestQueue(t *testing.T) {
	r, _ := play(t, fleetOf(921*time.Millisecond, minutes(2000, 5)), one)
	got := r.Result()
	if got.Requests < 590_000 || got.Requests > 610_000 || got.Answered != got.Requests {
		t.Errorf("%d requests, %d answered, want about 600000, all answered", got.Requests, got.Answered)
	}
	if late := float64(got.Late) / float64(got.Requests); late < .009 || late > .011 {
		t.Errorf("%v of the requests are late, want .01", late)
	}
	if got.Windows != 2000 {
		t.Errorf("%d windows, want 2000", got.Windows)
	}
}

// TestWindows: minutes merge until they have 100 requests; with twice the requests that a replica can answer the promise is broken in all.
func TestWindows(t *testing.T) {
	for _, tc := range []struct {
		name            string
		rate            float64
		windows, broken [2]int // at least, at most
	}{
		{"one a second", 1, [2]int{29, 31}, [2]int{0, 0}},
		{"twenty a second", 20, [2]int{60, 60}, [2]int{59, 60}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := play(t, fleetOf(2*time.Second, minutes(60, tc.rate)), one)
			got := r.Result()
			if got.Windows < tc.windows[0] || got.Windows > tc.windows[1] || got.Broken < tc.broken[0] || got.Broken > tc.broken[1] {
				t.Errorf("%d windows of which %d are broken, want %v and %v", got.Windows, got.Broken, tc.windows, tc.broken)
			}
		})
	}
}

// TestLoad: a replica that runs serves after its time to load. Two replicas are enough, and one is not: until the second one serves, after
// ten minutes and the load, minutes are broken, and then those in which the first one works its queue of 1200 off at four a second.
func TestLoad(t *testing.T) {
	broken := func(load time.Duration) int {
		f := fleetOf(2*time.Second, minutes(60, 12))
		f.Load, f.Most = load, 2
		r, _ := play(t, f, func(at time.Duration) int {
			if at < 10*time.Minute {
				return 1
			}
			return 2
		})
		return r.Result().Broken
	}
	at0, at10 := broken(0), broken(10*time.Minute)
	if at0 < 12 || at0 > 17 {
		t.Errorf("without a load %d minutes are broken, want about 15", at0)
	}
	// The first replica loads for ten minutes too, before the first request: so requests come from the tenth minute on.
	if at10 < 12 || at10 > 17 {
		t.Errorf("with a load of ten minutes %d minutes are broken, want about 15", at10)
	}
}

// TestSize: the fleet grows with its requests, up to Most, and shrinks after them.
func TestSize(t *testing.T) {
	f := fleetOf(2*time.Second, append(append(minutes(30, 5), minutes(60, 60)...), minutes(60, 5)...))
	f.Fixed, f.Most = false, 12
	now := 1
	r, err := requests.New(f, 1)
	must.OK(t, err)
	var at29, at80, last int
	for at := time.Duration(0); at < f.Lasts(); at += 10 * time.Second {
		now, _ = r.Size(at, now)
		switch at {
		case 29 * time.Minute:
			at29 = now
		case 80 * time.Minute:
			at80 = now
		}
		last = now
	}
	if at29 > 2 || at80 < 8 || at80 > 12 || last > 3 {
		t.Errorf("%d replicas for 5 requests a second, %d for 60, %d for 5 again, want up to 2, 8 to 12, up to 3", at29, at80, last)
	}
	if got := r.Result(); got.Broken == 0 || got.Broken > 15 {
		t.Errorf("%d minutes are broken, want some after the jump and up to 15", got.Broken)
	}
}

// TestOutage: while no replica runs, requests find none and are late.
func TestOutage(t *testing.T) {
	r, _ := play(t, fleetOf(2*time.Second, minutes(60, 5)), func(at time.Duration) int {
		if at > 20*time.Minute && at < 30*time.Minute {
			return 0
		}
		return 1
	})
	got := r.Result()
	if lost := got.Requests - got.Answered; lost < 2800 || lost > 3200 {
		t.Errorf("%d requests find no replica, want those of ten minutes, about 3000", lost)
	}
	if got.Broken < 9 || got.Broken > 12 {
		t.Errorf("%d minutes are broken, want those of the outage", got.Broken)
	}
}

// TestUntil: answers after the time do not count, and the windows do.
func TestUntil(t *testing.T) {
	f := fleetOf(2*time.Second, minutes(60, 5))
	f.Until = 30 * time.Minute
	r, _ := play(t, f, one)
	if got := r.Result(); got.Answered < 8700 || got.Answered > 9300 || got.Windows != 60 {
		t.Errorf("%d answers in %d windows, want about 9000 in 60", got.Answered, got.Windows)
	}
}

// TestForPeak: within 0.95 × 970 ms, which is 921.5 ms, a replica serves 5 requests a second: two serve the highest rate, 9.
func TestForPeak(t *testing.T) {
	f := fleetOf(970*time.Millisecond, []float64{1, 9, 3})
	f.Most = 4
	if n, enough := f.ForPeak(); n != 2 || !enough {
		t.Errorf("%d replicas, enough: %v, want 2", n, enough)
	}
	f.Rates = []float64{100}
	if n, enough := f.ForPeak(); n != 4 || enough {
		t.Errorf("%d replicas, enough: %v, want the most, 4, and not enough", n, enough)
	}
}

func TestNewRefuses(t *testing.T) {
	f := fleetOf(time.Second, minutes(1, 1))
	f.Replica.Rate = 0
	if _, err := requests.New(f, 1); err == nil || !strings.Contains(err.Error(), `fleet f: variant "share": rate 0`) {
		t.Errorf("New gives the error %v, want one about the rate", err)
	}
}
