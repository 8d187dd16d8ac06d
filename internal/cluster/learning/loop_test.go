package learning

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// round is the time of one observation, and for the agent to publish that the tenant group is another.
const round = defaultWarmUp + defaultInterval + 2*time.Minute

// mix puts the jobs on devices in companies of one to three that are drawn, and lets them run for one observation.
func (w *world) mix(random *rand.Rand, jobs []*job, met map[[2]*job]bool) {
	order, at := random.Perm(len(jobs)), 0
	for i := range w.gpus {
		size := []int{1, 2, 2, 2, 2, 3}[random.IntN(6)]
		var group []*job
		for ; size > 0 && at < len(order); size-- {
			group = append(group, jobs[order[at]])
			at++
		}
		w.place(i, group...)
		for _, a := range group {
			for _, b := range group {
				if a != b {
					met[[2]*job{a, b}] = true
				}
			}
		}
	}
	w.run(round)
}

func (w *world) coRuns(j *job) int {
	return w.learner.Snapshot().Tenant(w.number(j), a100, 1000).CoRuns
}

// solo lets each job run alone for as many intervals as make a rate alone.
func (w *world) solo(jobs []*job) {
	for range fewValues {
		for at := 0; at < len(jobs); at += len(w.gpus) {
			for i := range w.gpus {
				w.place(i, jobs[min(len(jobs), at+i):min(len(jobs), at+i+1)]...)
			}
			w.run(round)
		}
	}
}

// misses are the greatest and the mean errors of learned slowdowns, as parts. The harm is the slowdown less one: the
// hidden sensitivity × pressure itself.
type misses struct{ slowdown, harm, mean float64 }

// loop runs until each job was observed in so many co-runs, and returns the errors over all ordered pairs of jobs that
// met of which the first does not lie. A co-run is an interval of two minutes beside one or two others.
func loop(t *testing.T, seed uint64, liars int, lie func(beside *job) float64, coRuns int) misses {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, 12, Options{})
	w.truth = fakegpu.Interference{Seed: seed, Noise: .1}
	jobs := draw(random, 20)
	for i := range liars {
		jobs[i*5].lie = lie
	}
	met := map[[2]*job]bool{}
	w.solo(jobs)
	for rounds := 0; w.least(jobs) < coRuns; rounds++ {
		if rounds > 3*coRuns {
			t.Fatalf("seed %d: %d co-runs after %d rounds", seed, w.least(jobs), rounds)
		}
		w.mix(random, jobs, met)
	}
	return w.misses(jobs, met)
}

// least returns the co-runs of the job that was observed in the fewest.
func (w *world) least(jobs []*job) int {
	least := math.MaxInt
	for _, j := range jobs {
		least = min(least, w.coRuns(j))
	}
	return least
}

func (w *world) misses(jobs []*job, met map[[2]*job]bool) misses {
	var m misses
	n := 0.
	for _, a := range jobs {
		for _, b := range jobs {
			if a == b || a.lie != nil || !met[[2]*job{a, b}] {
				continue
			}
			truth := 1 / fakegpu.Speed([]fakegpu.Hidden{a.hidden, b.hidden}, 0)
			found := w.predict(a, b)[0]
			harm := math.Abs((found-1)/(truth-1) - 1)
			m.slowdown, m.harm = max(m.slowdown, math.Abs(found/truth-1)), max(m.harm, harm)
			m.mean, n = m.mean+harm, n+1
		}
	}
	m.mean /= n
	return m
}

// The scheduler learns the hidden sensitivity × pressure of every pair within 15 % after 50 co-runs of each workload,
// from what agents publish: rates with ±10 % noise, and the bandwidth of devices. So it does beside two liars of twenty,
// whatever they lie, for the eighteen that do not.
func TestClosedLoop(t *testing.T) {
	const seeds, coRuns, most = 5, 50, .15
	factor := func(f float64) func(*job) float64 { return func(*job) float64 { return f } }
	for _, c := range []struct {
		name  string
		liars int
		lie   func(*job) float64
	}{
		{"honest", 0, nil},
		{"report half", 2, factor(.5)},
		{"report double", 2, factor(2)},
		{"report a third", 2, factor(1. / 3)},
		{"report half beside one team", 2, func(beside *job) float64 {
			if beside.name[0] == 'b' {
				return .5
			}
			return 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var worst misses
			for seed := range uint64(seeds) {
				m := loop(t, seed, c.liars, c.lie, coRuns)
				if m.harm > most {
					t.Errorf("seed %d: a learned slowdown less one is off by %.1f %%, legal are %.0f %%", seed, 100*m.harm, 100*most)
				}
				worst.slowdown, worst.harm = max(worst.slowdown, m.slowdown), max(worst.harm, m.harm)
				worst.mean += m.mean / seeds
			}
			t.Logf("slowdown: worst error %.1f %%; slowdown less one: worst %.1f %%, mean %.1f %%", 100*worst.slowdown, 100*worst.harm, 100*worst.mean)
		})
	}
}
