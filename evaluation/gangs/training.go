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

// gangResult is what came of one run.
type gangResult struct {
	outcome
	restarts int
	// large is the mean hours that jobs of a quarter of the GPUs or more wait before their first start, 0 where there are none.
	large float64
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
	runs, err := playGrid(g, batches, append([]string{stockGangs}, g.Policies...), rules[gangResult]{drawsGangs, g.play})
	if err != nil {
		return nil, fmt.Errorf("run gangs: %w", err)
	}
	for _, policy := range g.Policies {
		out.Results = append(out.Results, gangsComparedTo(runs[stockGangs], policy, runs[policy]))
	}
	return out, nil
}

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
	out := gangResult{outcome: outcome{jcts: r.jcts()}, restarts: r.restarts(), idle: 1 - r.trained/r.held, large: r.largeWait(g.Nodes * g.GPUs / largePart)}
	if s, ok := p.(*stock); ok {
		out.stuck = s.stuck
	}
	return out, nil
}

// prepare checks the fields, and reads the jobs.
func (g *Training) prepare() ([]gangBatch, *results.Training, error) {
	apps, err := g.apps()
	if err != nil {
		return nil, nil, err
	}
	out := &results.Training{Setting: g.setting()}
	batches := make([]gangBatch, 0, len(g.Workloads))
	var pool []gangJob
	for _, w := range g.Workloads {
		jobs, err := g.jobs(apps, w)
		if err != nil {
			return nil, nil, err
		}
		out.LeftOut += len(w.Jobs) - len(jobs)
		pool = append(pool, jobs...)
		batches = append(batches, gangBatch{name: w.File, jobs: func(int64) []gangJob { return jobs }})
	}
	if len(g.Loads) > 0 {
		batches = g.loads(pool)
	}
	for i := range batches {
		out.Columns = append(out.Columns, batches[i].name)
	}
	return batches, out, nil
}

// apps checks the fields, and reads the measurements.
func (g *Training) apps() (map[string]*gangApp, error) {
	if err := g.validate(); err != nil {
		return nil, err
	}
	return gangApps(g.Measured, g.Kind)
}

func (g *Training) setting() results.Setting {
	return results.Setting{Kind: g.Kind, Nodes: g.Nodes, GPUs: g.GPUs, Seeds: g.Seeds}
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
		all = append(all, g.job(app, j.Arrive, j.Workers, j.Batch))
	}
	if len(all) == 0 {
		return nil, g.nothingMeasured(w)
	}
	return inArrival(all), nil
}

// nothingMeasured is the error of a workload without a job that can be played.
func (g *Training) nothingMeasured(w *measurements.File) error {
	return fmt.Errorf("%v: no job of an application that was measured on %s", w, g.Kind)
}

// job is a job of an application, which trains until it has made the progress of all its epochs once.
func (g *Training) job(app *gangApp, arrive time.Duration, workers int, batch int64) gangJob {
	return gangJob{
		arrive: arrive.Seconds(), app: app, workers: workers, batch: batch,
		expected: app.work(batch, workers) * app.stepTime(batch, compactly(workers, g.GPUs)),
		loss:     lossOf(app, batch, workers, g.GPUs),
		cost:     g.costOf(app.name),
	}
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
		batches = append(batches, gangBatch{name: fmt.Sprintf("load %g", load), draws: true, jobs: func(seed int64) []gangJob {
			return inArrival(drawJobs(pool, max(1, int(math.Round(load*each))), seed))
		}})
	}
	return batches
}

// drawJobs draws so many jobs, each once before any comes again.
func drawJobs(pool []gangJob, count int, seed int64) []gangJob {
	random := rand.New(rand.NewPCG(uint64(seed), 2))
	var jobs []gangJob
	for len(jobs) < count {
		for _, i := range random.Perm(len(pool))[:min(len(pool), count-len(jobs))] {
			jobs = append(jobs, pool[i])
		}
	}
	return jobs
}

// gangsComparedTo sums up the runs of a policy. The base is those of the default scheduler.
func gangsComparedTo(base grid[gangResult], policy string, runs grid[gangResult]) results.TrainingResult {
	seeds, columns := len(runs), len(runs[0])
	of := func(s, c int) *outcome { return &runs[s][c].outcome }
	out := results.TrainingResult{Policy: policy}
	out.Hours, out.MeanHours = hours(seeds, columns, of)
	out.Gain, out.GainUnstuck = gains(seeds, columns, func(s, c int) *outcome { return &base[s][c].outcome }, of)
	out.Restarts = overColumns(seeds, columns, func(s, c int) float64 { return float64(runs[s][c].restarts) })
	out.Idle = overColumns(seeds, columns, func(s, c int) float64 { return runs[s][c].idle })
	out.LargeWait = overColumns(seeds, columns, func(s, c int) float64 { return runs[s][c].large })
	out.Stuck = overColumns(seeds, columns, func(s, c int) float64 { return float64(len(runs[s][c].stuck)) })
	return out
}
