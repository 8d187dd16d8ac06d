package inference

import (
	"math"
	"testing"
)

// SMIF's mix, and two of two GPUs.
var splits = Splits{
	Mixes: []Mix{{10, 5, 3.3, 1}, {3, 1}, {2, 1}}, Busy: []float64{.3, .5, .7}, Requests: 3_000_000, Seed: 1,
}

func within(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if !(math.Abs(got-want) <= part*want) {
		t.Errorf("%s: %v, want %v within %g %%", what, got, want, 100*part)
	}
}

// The replay agrees with the formulas within 2 %: in latencies, and in the highest rate without an overloaded GPU. That of SMIF's mix
// is 19.3 ÷ (4 × 1) = 4.825 times the one of equal parts.
func TestSplitsAreAsTheFormulas(t *testing.T) {
	if testing.Short() {
		t.Skip("it plays some hundred million requests, too many for -short: make test plays them")
	}
	s := splits
	s.Mixes, s.Busy = s.Mixes[:1], []float64{.5, .7}
	r := s.Run()
	for i := range r.Latencies {
		x := &r.Latencies[i]
		name := x.Mix + " " + x.Division
		if x.Overloaded != (x.Division == "uniform") {
			t.Errorf("%s at %v: overloaded is %v", name, x.Busy, x.Overloaded)
		}
		if !x.Overloaded {
			within(t, name+": the mean", x.Mean.Played, x.Mean.Formula, .02)
			within(t, name+": the p99", x.P99.Played, x.P99.Formula, .02)
			within(t, name+": the p99 of the slowest GPU", x.SlowestP99.Played, x.SlowestP99.Formula, .04) // of some thousand requests
		}
	}
	for _, x := range r.Sustained {
		within(t, x.Division+" sustains", x.Played, x.Formula, .02)
	}
	gain := r.Sustained[1].Played / r.Sustained[0].Played
	within(t, "the gain of the proportional division", gain, 4.825, .02)
}

// The formulas: at 10:5:3.3:1 the mean of the mean-optimal division is 0.68, 0.75 and 0.82 of that of the proportional one, and less than 0.85 up to
// 0.7 of the rate. At 3:1 and 2:1 it is 0.90 and 0.96 at 0.7. Its p99 is no worse.
func TestGainsOfTheFormulas(t *testing.T) {
	for _, x := range []struct {
		mix        Mix
		busy, want float64
	}{
		{splits.Mixes[0], .3, .678}, {splits.Mixes[0], .5, .75}, {splits.Mixes[0], .7, .82}, {splits.Mixes[1], .7, .904}, {splits.Mixes[2], .7, .960},
	} {
		demand := x.busy * x.mix.sum()
		optimal, smif := steadyQueues(x.mix, meanOptimal(x.mix, demand)), steadyQueues(x.mix, proportional(x.mix, demand))
		within(t, x.mix.String(), optimal.mean()/smif.mean(), x.want, .01)
		if optimal.quantile() > smif.quantile() {
			t.Errorf("%v at %v: the p99 is %v, of the proportional division %v", x.mix, x.busy, optimal.quantile(), smif.quantile())
		}
	}
}

// The divisions that the controller decides are those of the formulas.
func TestDecidedIsAsTheFormulas(t *testing.T) {
	for _, m := range splits.Mixes {
		for _, busy := range []float64{.1, .3, .5, .57, .58, .7, .95} {
			for _, d := range divisions() {
				demand := busy * m.sum()
				formula := d.formula(m, demand)
				for i, rate := range d.played(m, demand) {
					if math.Abs(rate-formula[i]) > 1e-3*demand {
						t.Errorf("%v at %v, %s: GPU %d gets %v, by the formula %v", m, busy, d.name, i, rate, formula[i])
					}
				}
			}
		}
	}
}

// At 3:1 and 2 requests a second, p99-optimal gives all to the fast GPU: M/M/1 with 1 to spare.
func TestQueues(t *testing.T) {
	q := steadyQueues(Mix{3, 1}, tailOptimal(Mix{3, 1}, 2))
	within(t, "the mean", q.mean(), 1, 1e-9)
	within(t, "the p99", q.quantile(), math.Log(100), 1e-9)
	within(t, "the p99 of the slowest", q.slowest(), math.Log(100), 1e-9)
	if steadyQueues(Mix{3, 1}, []float64{1, 1}) != nil {
		t.Error("a GPU that gets what it serves is not overloaded")
	}
}

// A run reports each of its steps.
func TestSplitsProgress(t *testing.T) {
	s := Splits{Mixes: []Mix{{2, 1}}, Busy: []float64{.5}, Requests: 1000}
	steps := 0
	s.Progress = func(done, total int) {
		if steps++; done != steps || total != 8 {
			t.Errorf("step %d: %d of %d", steps, done, total)
		}
	}
	r := s.Run()
	if steps != 8 || len(r.Latencies) != 4 || len(r.Sustained) != 4 {
		t.Errorf("%d steps, %+v", steps, r)
	}
}
