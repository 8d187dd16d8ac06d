package gangs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

// Bounds of a Training. Above them a run takes minutes.
const (
	MaxNodes = 1000
	MaxGPUs  = 64
	MaxLoad  = 10
)

// Training lets jobs whose workers train together run on a cluster of whole GPUs, and compares what policies make of
// it. Measured steps give the speed of a job at a place, and measured epochs the number of its steps.
type Training struct {
	// Workloads, each the jobs of a few hours. Training leaves out jobs of applications without a measurement on the
	// nodes.
	Workloads []*measurements.File
	// Measured steps and epochs, and the Kind of node whose steps count.
	Measured []*measurements.File
	Kind     string
	// Nodes with so many GPUs each: at least 1, at most MaxNodes and MaxGPUs.
	Nodes, GPUs int
	// Interval is how often policies decide, Restart what it takes to start or go on with a job.
	Interval, Restart time.Duration
	// Costs are the times, by application, that a later start or a change of size takes instead of Restart.
	Costs map[string]time.Duration
	// Loads, above 0 and at most MaxLoad, replace the workloads: each load is as many times as many jobs as a workload
	// has, drawn by the seed from the jobs of all of them. Empty for the workloads as they are.
	Loads []float64
	// Policies of Policies, and Seeds: at least one of each.
	Policies []string
	Seeds    []int64
	// Several goroutines call Progress with the number of complete runs; it may be nil.
	Progress func(done, total int)
}

// gangBatch is the jobs of one run, with a name that those of all seeds share.
type gangBatch struct {
	name string
	jobs func(seed int64) []gangJob
}

// gangResult is what came of one run.
type gangResult struct {
	jcts     []float64
	restarts int
	// stuck says which jobs the default scheduler had to start anew.
	stuck map[int]bool
	// idle is the part of the held GPU time in which the job did no work.
	idle float64
}

// Run plays every policy with every workload, or load, and seed. It always plays the default scheduler of Kubernetes,
// for comparison.
func (g *Training) Run() (*results.Training, error) {
	batches, out, err := g.prepare()
	if err != nil {
		return nil, fmt.Errorf("run gangs: %w", err)
	}
	policies := slices.Concat([]string{stockGangs}, g.Policies)
	each := len(g.Seeds) * len(batches)
	runs := make([]gangResult, len(policies)*each)
	err = scenario.Each(len(runs), g.Progress, func(i int) error {
		policy, seed, batch := policies[i/each], g.Seeds[i%each/len(batches)], batches[i%len(batches)]
		if g.repeats(policy) && i%each >= len(batches) {
			return nil
		}
		var err error
		if runs[i], err = g.play(policy, batch.jobs(seed), seed); err != nil {
			return fmt.Errorf("run gangs of %s by policy %s with seed %d: %w", batch.name, policy, seed, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range runs {
		if g.repeats(policies[i/each]) {
			runs[i] = runs[i-i%each+i%len(batches)]
		}
	}
	for p, policy := range g.Policies {
		out.Results = append(out.Results, gangsComparedTo(runs[:each], policy, runs[(p+1)*each:(p+2)*each], len(batches)))
	}
	return out, nil
}

// repeats reports whether the runs of a policy are the same for all seeds.
func (g *Training) repeats(policy string) bool { return len(g.Loads) == 0 && !drawsGangs(policy) }

// play plays one run.
func (g *Training) play(policy string, jobs []gangJob, seed int64) (gangResult, error) {
	p, err := gangPolicyOf(g, policy, seed)
	if err != nil {
		return gangResult{}, err
	}
	r := newGangRun(g, p, jobs)
	if err := r.play(); err != nil {
		return gangResult{}, err
	}
	out := gangResult{jcts: r.jcts(), restarts: r.restarts(), idle: 1 - r.trained/r.held}
	if s, ok := p.(*stock); ok {
		out.stuck = s.stuck
	}
	return out, nil
}

// prepare checks the fields, and reads the jobs.
func (g *Training) prepare() ([]gangBatch, *results.Training, error) {
	if err := g.validate(); err != nil {
		return nil, nil, err
	}
	apps, err := gangApps(g.Measured, g.Kind)
	if err != nil {
		return nil, nil, err
	}
	out := &results.Training{Kind: g.Kind, Nodes: g.Nodes, GPUs: g.GPUs, Seeds: g.Seeds}
	batches := make([]gangBatch, 0, len(g.Workloads))
	var pool []gangJob
	for _, w := range g.Workloads {
		jobs, err := g.jobs(apps, w)
		if err != nil {
			return nil, nil, err
		}
		out.LeftOut += len(w.Jobs) - len(jobs)
		if len(jobs) == 0 {
			return nil, nil, fmt.Errorf("%v: no job of an application that was measured on %s", w, g.Kind)
		}
		pool = append(pool, jobs...)
		batches = append(batches, gangBatch{w.File, func(int64) []gangJob { return jobs }})
	}
	if len(g.Loads) > 0 {
		batches = g.loads(pool)
	}
	for _, b := range batches {
		out.Columns = append(out.Columns, b.name)
	}
	return batches, out, nil
}

func (g *Training) validate() error {
	switch {
	case len(g.Policies) == 0 || len(g.Seeds) == 0 || len(g.Workloads) == 0:
		return errors.New("no policy, no seed or no workload")
	case g.Nodes < 1 || g.Nodes > MaxNodes:
		return fmt.Errorf("%d nodes, legal is 1 to %d", g.Nodes, MaxNodes)
	case g.GPUs < 1 || g.GPUs > MaxGPUs:
		return fmt.Errorf("%d GPUs of each node, legal is 1 to %d", g.GPUs, MaxGPUs)
	case g.Interval < time.Second || g.Interval > time.Hour:
		return fmt.Errorf("an interval of %v, legal is 1s to 1h", g.Interval)
	case g.Restart < 0 || g.Restart > time.Hour:
		return fmt.Errorf("a restart of %v, legal is 0s to 1h", g.Restart)
	}
	for _, l := range g.Loads {
		if !(l > 0 && l <= MaxLoad) {
			return fmt.Errorf("load %v, legal is above 0 to %d", l, MaxLoad)
		}
	}
	return nil
}

// jobs returns the jobs of a workload with measurements, in the order of their arrival.
func (g *Training) jobs(apps map[string]*gangApp, w *measurements.File) ([]gangJob, error) {
	if w.Format != traces.PolluxWorkload {
		return nil, fmt.Errorf("%v: want %s", w, traces.PolluxWorkload)
	}
	all := make([]gangJob, 0, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		app, measured := apps[j.App]
		if !measured {
			continue
		}
		if err := app.legal(j.Batch, j.Workers); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", w.File, j.Line, err)
		}
		if j.Workers > g.Nodes*g.GPUs {
			return nil, fmt.Errorf("%s line %d: %d workers on %d GPUs", w.File, j.Line, j.Workers, g.Nodes*g.GPUs)
		}
		all = append(all, gangJob{
			arrive: j.Arrive.Seconds(), app: app, workers: j.Workers, batch: j.Batch,
			expected: app.work(j.Batch, j.Workers) * app.stepTime(j.Batch, compactly(j.Workers, g.GPUs)),
			loss:     lossOf(app, j.Batch, j.Workers, g.GPUs),
			cost:     g.costOf(j.App),
		})
	}
	return inArrival(all), nil
}

// costOf returns the seconds that a later start, or a change of size, takes.
func (g *Training) costOf(app string) float64 {
	if cost, own := g.Costs[app]; own {
		return cost.Seconds()
	}
	return g.Restart.Seconds()
}

// inArrival orders and numbers jobs by arrival; those at the same time stay in their order.
func inArrival(jobs []gangJob) []gangJob {
	slices.SortStableFunc(jobs, func(a, b gangJob) int { return cmp.Compare(a.arrive, b.arrive) })
	for i := range jobs {
		jobs[i].id = i
	}
	return jobs
}

// loads returns a batch for each load.
func (g *Training) loads(pool []gangJob) []gangBatch {
	each := float64(len(pool)) / float64(len(g.Workloads))
	batches := make([]gangBatch, 0, len(g.Loads))
	for _, load := range g.Loads {
		batches = append(batches, gangBatch{fmt.Sprintf("load %g", load), func(seed int64) []gangJob {
			random := rand.New(rand.NewPCG(uint64(seed), 2))
			count := max(1, int(math.Round(load*each)))
			var jobs []gangJob
			for len(jobs) < count {
				for _, i := range random.Perm(len(pool))[:min(len(pool), count-len(jobs))] {
					jobs = append(jobs, pool[i])
				}
			}
			return inArrival(jobs)
		}})
	}
	return batches
}

// gangsComparedTo sums up the runs of a policy, which are of all columns for each seed in turn. The base is those of the default
// scheduler.
func gangsComparedTo(base []gangResult, policy string, runs []gangResult, columns int) results.TrainingResult {
	out := results.TrainingResult{Policy: policy}
	of := func(figure func(i int) float64) results.Spread {
		perSeed := make([]float64, 0, len(runs)/columns)
		for s := 0; s < len(runs); s += columns {
			sum := 0.0
			for i := s; i < s+columns; i++ {
				sum += figure(i)
			}
			perSeed = append(perSeed, sum/float64(columns))
		}
		return results.SpreadOf(perSeed)
	}
	for c := range columns {
		perSeed := make([]float64, 0, len(runs)/columns)
		for i := c; i < len(runs); i += columns {
			perSeed = append(perSeed, results.Mean(runs[i].jcts))
		}
		out.Hours = append(out.Hours, results.SpreadOf(perSeed))
	}
	out.MeanHours = of(func(i int) float64 { return results.Mean(runs[i].jcts) })
	out.Restarts = of(func(i int) float64 { return float64(runs[i].restarts) })
	out.Idle = of(func(i int) float64 { return runs[i].idle })
	out.Stuck = of(func(i int) float64 { return float64(len(runs[i].stuck)) })
	out.Gain = of(func(i int) float64 { return results.Mean(base[i].jcts) / results.Mean(runs[i].jcts) })
	out.GainUnstuck = of(func(i int) float64 {
		return results.Mean(without(base[i].jcts, base[i].stuck)) / results.Mean(without(runs[i].jcts, base[i].stuck))
	})
	return out
}

// without returns the hours of the jobs that are not stuck, or of all where every job is.
func without(jcts []float64, stuck map[int]bool) []float64 {
	var all []float64
	for i, h := range jcts {
		if !stuck[i] {
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		return jcts
	}
	return all
}
