package settle

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// TestSizesAreBounded: no replica, promise or load time that a fleet may declare leads to more than twice the right size, or three replicas more, at a constant load for more than two
// load times. Requests of seconds are left out: so few of them come that the margin of the forecast, which is learned, may be as large (decision 0048).
func TestSizesAreBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parallel := rapid.IntRange(1, 8).Draw(t, "parallel")
		each := rapid.SampledFrom([]time.Duration{20 * time.Millisecond, 200 * time.Millisecond}).Draw(t, "time")
		w := World{
			Noise: float64(rapid.IntRange(0, 20).Draw(t, "noise")) / 100, Seed: uint64(rapid.IntRange(0, 1000).Draw(t, "seed")),
			Load: time.Duration(rapid.IntRange(0, 600).Draw(t, "load time")) * time.Second,
		}
		p := New(w, 0)
		p.Fleet.Promise.Within = each * time.Duration(rapid.IntRange(20, 500).Draw(t, "promise")) / 10
		p.Fleet.Variants[0].Replica = traffic.Replica{Rate: float64(parallel) / each.Seconds(), Time: each, Variation: float64(rapid.IntRange(0, 10).Draw(t, "variation")) / 10}
		capacity := p.Fleet.Variants[0].Replica.Capacity(p.Fleet.Promise)
		if !(capacity > 0) {
			return // no size keeps this promise
		}
		rate := capacity * float64(rapid.IntRange(5, 60).Draw(t, "load")) / 10
		p.Rate = constant(rate)
		right := p.Right(rate, 1)
		p.resize(rapid.IntRange(1, 2*right).Draw(t, "begin"), 0)
		p.Run(min(3*hour, max(hour, math.Floor(20_000/rate/every)*every)))
		checkBound(t, p, right)
	})
}

// checkBound holds the sizes to twice the right one, or three replicas more, but for two load times and two windows.
func checkBound(t rapid.TB, p *Plant, right int) {
	t.Helper()
	most, above, since := max(2*right, right+3), 0., math.Inf(1)
	for _, c := range append(p.Changes, Change{At: p.now}) {
		if above = max(above, c.At-since); c.To > most {
			since = min(since, c.At)
		} else {
			since = math.Inf(1)
		}
	}
	if above > 2*p.Load.Seconds()+2*window {
		t.Fatalf("%d replicas are right, and for %v s there were more than %d: %v", right, above, most, p.Changes)
	}
}
