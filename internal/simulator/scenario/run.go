package scenario

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tandem-gpu/tandem/internal/simulator/requests"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

// Result is what came of a scenario.
type Result struct {
	Name string
	// Runs by policy in the order of the scenario, then by seed.
	Runs []Run
	// Assertions judged, in the order of the scenario, then of the runs.
	Assertions []Verdict
}

// Run is one policy with one seed.
type Run struct {
	Policy  string
	Seed    int64
	History *sim.History
	// Work is what was done, nil where the scenario has no fleets, no notebooks and no policy native.
	Work *Work
}

// Passed reports whether all assertions hold.
func (r *Result) Passed() bool {
	for i := range r.Assertions {
		if !r.Assertions[i].Passed {
			return false
		}
	}
	return true
}

// Hundredths is how many steps of progress make one run.
const Hundredths = 100

// Play plays every policy with every seed, as many at once as Go uses processors; the result does not depend on that.
// Play calls progress, from several goroutines, with the number of complete steps: Hundredths for each run. progress
// may be nil.
func (s *Scenario) Play(progress func(done, total int)) (*Result, error) {
	r := &Result{Name: s.Name, Runs: make([]Run, len(s.Policies)*len(s.Seeds))}
	var steps atomic.Int64
	err := Each(len(r.Runs), nil, func(i int) error {
		run := &r.Runs[i]
		run.Policy, run.Seed = s.Policies[i/len(s.Seeds)], s.Seeds[i%len(s.Seeds)]
		before := 0
		reach := func(step int) {
			if progress != nil && step > before {
				progress(int(steps.Add(int64(step-before))), len(r.Runs)*Hundredths)
				before = step
			}
		}
		// The wait for the last jobs comes after their arrivals: the run itself is the last step.
		arrived := func(done, total int) { reach((Hundredths - 1) * done / max(total, 1)) }
		err := s.play(run, arrived)
		reach(Hundredths)
		if err != nil {
			return fmt.Errorf("play scenario %s by policy %s with seed %d: %w", s.Name, run.Policy, run.Seed, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range s.Assertions {
		for k := range r.Runs {
			if a := &s.Assertions[i]; a.Policy == "" || a.Policy == r.Runs[k].Policy {
				r.Assertions = append(r.Assertions, judge(a, &r.Runs[k]))
			}
		}
	}
	return r, nil
}

func (s *Scenario) play(run *Run, arrived func(done, total int)) error {
	w := newWorker(run, s.slots)
	jobs, err := s.draw(run.Seed, w.see)
	if err != nil {
		return err
	}
	setup := sim.Setup{Nodes: s.Nodes, Jobs: jobs, Queue: s.Queue, Seed: run.Seed, Labels: s.Labels, Gangs: s.Gangs, Preemption: s.Preemption,
		Elastic:  s.Elastic,
		Progress: arrived}
	if run.Policy == native {
		natively(&setup, s.slots)
	}
	if setup.Policy, err = placement.ByName(placementOf(run.Policy)); err != nil {
		return err
	}
	played, err := s.addFleets(&setup, run, w)
	if err != nil {
		return err
	}
	if setup.Mix, err = s.typical.of(setup.Jobs); err != nil {
		return err
	}
	if run.History, err = sim.Run(setup); err == nil && s.slots > 0 {
		run.Work = w.sum(s, setup.Jobs, played)
	}
	return err
}

// addFleets adds the replicas of the fleets to a setup, and returns their requests.
func (s *Scenario) addFleets(setup *sim.Setup, run *Run, w *worker) ([]*requests.Run, error) {
	setup.Jobs = slices.Clip(setup.Jobs)
	all := make([]*requests.Run, 0, len(s.fleets))
	for _, x := range s.fleets {
		jobs, played, err := x.play(run, s.Elastic.Every, s.until)
		if err != nil {
			return nil, err
		}
		for range jobs {
			w.kinds = append(w.kinds, Inference)
		}
		setup.Jobs, all = append(setup.Jobs, jobs...), append(all, played)
	}
	return all, nil
}

// Each runs n tasks on as many goroutines as Go uses processors. The tasks do not know of each other, so what they
// leave behind by their index does not depend on how many run at once. Each begins no task after one has failed, and
// returns the error of the first that did, by index. Several goroutines call progress with the number of complete
// tasks; progress may be nil.
func Each(n int, progress func(done, total int), task func(i int) error) error {
	var mu sync.Mutex
	next, done, failed := 0, 0, false
	errs := make([]error, n)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && !failed
	}
	end := func(i int, err error) int {
		mu.Lock()
		defer mu.Unlock()
		errs[i], failed = err, failed || err != nil
		done++
		return done
	}
	var all sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if now := end(i, task(i)); progress != nil {
					progress(now, n)
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs { // tasks begin in the order of their index, so all before the first error have run
		if err != nil {
			return err
		}
	}
	return nil
}
