package gangs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/results"
)

// Elastic plays the jobs of a Training with numbers of workers that change, and compares what policies make of them. A
// job has from its least number of workers to twice as many as it asks for, of the numbers that were measured. Its batch,
// and so the model that it trains, stays the same.
//
// The workloads may be traces of Muri too. Each load is played with each workload by itself, and not with all of them
// together: see sets.
type Elastic struct {
	Training
	// Least is the least number of workers of a job, as a part of those that it asks for: 0 to 1, 0 for one worker.
	Least float64
	// Jobs is how many jobs in a row of a trace of Muri are played, 1 or more.
	Jobs int
	// Models says which application stands for a model of Muri.
	Models map[string]StandIn
}

// elasticResult is what came of one run. The figures are by job.
type elasticResult struct {
	outcome
	// waits are hours from arrival to start.
	waits []float64
	// unfairness is the hours from arrival to end ÷ those that the job would take alone on an equal part of the cluster.
	unfairness []float64
	// changes counts changes of size, and later starts.
	changes int
}

// Run plays every policy of ElasticPolicies with every workload, load and seed. It always plays the default scheduler of
// Kubernetes and static sizes, for comparison.
func (e *Elastic) Run() (*results.Elastic, error) {
	sets, leftOut, err := e.sets()
	if err != nil {
		return nil, fmt.Errorf("run elastic: %w", err)
	}
	var batches []gangBatch
	for i := range sets {
		batches = append(batches, sets[i].batches...)
	}
	policies := append([]string{stockGangs, staticGangs}, e.Policies...)
	runs, err := playGrid(&e.Training, batches, policies, rules[elasticResult]{drawsSizes, e.play})
	if err != nil {
		return nil, fmt.Errorf("run elastic: %w", err)
	}
	out := &results.Elastic{Setting: e.setting()}
	out.LeftOut = leftOut
	from := 0
	for i := range sets {
		to := from + len(sets[i].batches)
		part := map[string]grid[elasticResult]{}
		for policy := range runs {
			part[policy] = runs[policy].columns(from, to)
		}
		out.Groups = append(out.Groups, e.group(&sets[i], part))
		from = to
	}
	return out, nil
}

// drawsSizes reports whether a policy differs by the seed.
func drawsSizes(policy string) bool {
	at := slices.IndexFunc(elasticPolicies, func(p elasticRow) bool { return p.name == policy })
	return at >= 0 && elasticPolicies[at].make == nil && drawsGangs(elasticPolicies[at].fixed)
}

// play plays one run.
func (e *Elastic) play(policy string, jobs []gangJob, seed int64) (elasticResult, error) {
	at := slices.IndexFunc(elasticPolicies, func(p elasticRow) bool { return p.name == policy })
	if at < 0 {
		return elasticResult{}, fmt.Errorf("unknown policy %q", policy)
	}
	row := elasticPolicies[at]
	if row.make == nil {
		return e.playFixed(row.fixed, jobs, seed)
	}
	r, err := newElasticRun(&e.Training, row.make(), jobs)
	if err != nil {
		return elasticResult{}, err
	}
	if err := r.play(); err != nil {
		return elasticResult{}, err
	}
	out, stays := elasticResult{}, make([]stay, 0, len(r.jobs))
	for i := range r.jobs {
		j := &r.jobs[i]
		stays = append(stays, stay{&j.gangJob, j.started, j.completed})
		out.changes += j.changes
	}
	out.sumUp(&e.Training, stays)
	return out, nil
}

// playFixed plays one run of jobs that keep their sizes.
func (e *Elastic) playFixed(policy string, jobs []gangJob, seed int64) (elasticResult, error) {
	p, err := gangPolicyOf(&e.Training, policy, seed)
	if err != nil {
		return elasticResult{}, err
	}
	r := newGangRun(&e.Training, p, jobs)
	if err := r.play(); err != nil {
		return elasticResult{}, err
	}
	out, stays := elasticResult{changes: r.restarts()}, make([]stay, 0, len(r.states))
	for i := range r.states {
		s := &r.states[i]
		stays = append(stays, stay{s.gangJob, s.started, s.completed})
	}
	out.sumUp(&e.Training, stays)
	if s, ok := p.(*stock); ok {
		out.stuck = s.stuck
	}
	return out, nil
}

// stay is the time of a job in the cluster, in seconds.
type stay struct {
	*gangJob
	started, completed float64
}

// sumUp computes the figures of jobs.
func (x *elasticResult) sumUp(g *Training, stays []stay) {
	for i := range stays {
		s := &stays[i]
		x.jcts = append(x.jcts, (s.completed-s.arrive)/3600)
		x.waits = append(x.waits, (s.started-s.arrive)/3600)
		x.unfairness = append(x.unfairness, (s.completed-s.arrive)/g.alone(s, meanJobs(stays, s)))
	}
}

// meanJobs returns how many jobs were there on average while one was, itself included.
func meanJobs(stays []stay, of *stay) float64 {
	sum := 0.0
	for i := range stays {
		sum += max(0, min(of.completed, stays[i].completed)-max(of.arrive, stays[i].arrive))
	}
	return sum / (of.completed - of.arrive)
}

// alone returns the seconds that a job takes alone on 1/n of the cluster (finish-time fairness, Mahajan et al., NSDI 2020)
// with the fastest number of workers there, close together. If that is a part of a GPU, the job gets as much of the time.
func (g *Training) alone(s *stay, n float64) float64 {
	share := float64(g.Nodes*g.GPUs) / n
	rate := 0.0
	for _, workers := range s.app.sizesOf(s.batch, min(2*s.workers, g.Nodes*g.GPUs)) {
		if float64(workers) <= max(1, share) {
			rate = max(rate, s.speed(compactly(workers, g.GPUs)))
		}
	}
	return g.Restart.Seconds() + 1/(rate*min(1, share))
}

// quantile returns the least value of which at least a part q are no more.
func quantile(values []float64, q float64) float64 {
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	at := int(q*float64(len(sorted))+.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}
