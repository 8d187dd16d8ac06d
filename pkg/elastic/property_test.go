package elastic_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestTargetsProperty: a target is a legal size, or the size that the job has. It is never below the least size or above
// the largest. All targets together fit: the workers of the jobs that shrink leave, and the scheduler finds places for all
// jobs that start or grow. The ledgers are as before the call.
func TestTargetsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, cfg := randomWorld(t), randomPolicy(t)
		before := w.assignments()
		plan := w.decide(t, cfg)
		if diff := cmp.Diff(before, w.assignments()); diff != "" {
			t.Fatalf("the cluster changed: %s", diff)
		}
		for i := range plan.Targets {
			j, target := &w.jobs[i], &plan.Targets[i]
			switch {
			case target.Job != j.Name || target.Now != len(j.Placed):
				t.Fatalf("target %+v of job %s with %d workers", target, j.Name, len(j.Placed))
			case !slices.Contains(j.Sizes, target.Workers):
				t.Fatalf("target %+v of job %s, whose sizes are %v", target, j.Name, j.Sizes)
			case target.Why == elastic.Invalid || target.Err != nil:
				t.Fatalf("target %+v of a valid job", target)
			}
		}
		moves := w.apply(t, plan)
		for i := range plan.Targets {
			target := &plan.Targets[i]
			if missing := !slices.Contains(w.jobs[i].Sizes, target.Now); missing && target.Now > 0 && target.Workers > target.Now {
				continue // there may be no room yet for the workers that are missing
			}
			if n := len(w.jobs[i].Placed); n != target.Workers && (target.Why != elastic.Waits || n > 0) {
				t.Fatalf("job %s has %d workers after %d moves, its target is %+v; plan %+v of policy %s", target.Job, n, moves, target, plan, cfg.Policy)
			}
		}
	})
}

// assignments returns what is in all ledgers.
func (w *world) assignments() [][]vgpu.Assignment {
	all := make([][]vgpu.Assignment, 0, len(w.Nodes))
	for _, n := range w.Nodes {
		all = append(all, n.Assignments())
	}
	return all
}

// TestShuffleLaw: the order of jobs and nodes makes no difference.
func TestShuffleLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, cfg := randomWorld(t), randomPolicy(t)
		want := map[string]elastic.Target{}
		for _, target := range w.decide(t, cfg).Targets {
			want[target.Job] = target
		}
		w.jobs = rapid.Permutation(w.jobs).Draw(t, "jobs")
		for _, target := range w.decide(t, cfg).Targets {
			if diff := cmp.Diff(want[target.Job], target); diff != "" {
				t.Fatalf("target of %s: %s", target.Job, diff)
			}
		}
	})
}

// TestRepayLaw: under goodput a running job grows only where the new rate makes up for the cost, and gains a tenth, within
// the horizon and before the job ends.
func TestRepayLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		cfg := elastic.Config{Policy: "goodput", Horizon: float64(uniform(t, "horizon", 100, 1000, 10_000))}
		for i, target := range w.decide(t, cfg).Targets {
			if target.Now == 0 || target.Why != elastic.Idle && target.Why != elastic.Faster && target.Why != elastic.Lent {
				continue
			}
			j := &w.jobs[i]
			horizon := cfg.Horizon
			if target.Why == elastic.Lent {
				longest := 0.0
				for _, r := range w.reserved {
					longest = max(longest, float64(r.From-w.now)-elastic.DefaultGiveBack)
				}
				horizon = min(horizon, longest)
			}
			if j.Remaining > 0 {
				horizon = min(horizon, j.Remaining)
			}
			if target.After*(horizon-j.Cost) < target.Before*horizon*1.1-1e-9 {
				t.Fatalf("target %+v, a change costs %v s and has %v s to repay that", target, j.Cost, horizon)
			}
		}
	})
}

// TestLentLaw: capacity that is reserved for later is lent to jobs that run, and to no others. A job that waits starts only where it would if
// all of it were needed now, and no job shrinks for it that would not then.
func TestLentLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		w.reserved = append(w.reserved, elastic.Reserved{Amount: 2000, From: w.now + int64(uniform(t, "from", 130, 600, 3600))})
		cfg := elastic.Config{Policy: "goodput", MaxPlacements: 1000}
		later := w.decide(t, cfg).Targets
		for i := range w.reserved {
			if w.reserved[i].From <= w.now+elastic.DefaultHorizon {
				w.reserved[i].From = 0
			}
		}
		for i, now := range w.decide(t, cfg).Targets {
			if lent := &later[i]; lent.Why == elastic.Starts && now.Why != elastic.Starts || lent.Why == elastic.ForReserved && now.Why != elastic.ForReserved {
				t.Fatalf("with a reservation for later %+v, with one for now %+v", lent, now)
			}
		}
	})
}

// TestIdleLaw: no job shrinks for capacity that is to stay idle, however much there is of it, and none grows into it.
func TestIdleLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		w.reserved = []elastic.Reserved{{Amount: 1 << 40, Idle: true}}
		for _, target := range w.decide(t, elastic.Config{Policy: "goodput", MaxPlacements: 1000}).Targets {
			if target.Why == elastic.ForReserved || target.Why == elastic.Idle {
				t.Fatalf("all that is free is to stay idle, and %+v", target)
			}
		}
	})
}

// TestSteadyLaw: without any event, a job changes its size at most so often in an hour that it grows MaxMoves times. Under
// goodput nothing changes any more once the longest horizon is over.
func TestSteadyLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, cfg := randomWorld(t), randomPolicy(t)
		cfg.MaxMoves = between(t, "moves", 1, 6)
		last := 0 // the horizon ends when a job has run for four hours
		for round := range 96 {
			w.now += 300
			if w.apply(t, w.decide(t, cfg)) > 0 {
				last = round
			}
			for i := range w.jobs {
				grew := len(w.jobs[i].Moved) - upTo(w.jobs[i].Moved, w.now-3600)
				if grew > 2*cfg.MaxMoves+1 {
					t.Fatalf("job %s changed its size %d times within an hour, it may grow %d times", w.jobs[i].Name, grew, cfg.MaxMoves)
				}
			}
		}
		if cfg.Policy == "goodput" && last >= 72 {
			t.Fatalf("jobs %+v: policy %s still changes sizes after %d minutes", w.jobs, cfg.Policy, 5*last)
		}
	})
}

// upTo counts the times up to one.
func upTo(times []int64, last int64) (n int) {
	for _, at := range times {
		if at <= last {
			n++
		}
	}
	return n
}
