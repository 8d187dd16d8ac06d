package gangs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

// Elastic plays the jobs of a Training with numbers of workers that change, and compares what policies make of them. A
// job has from one to twice as many workers as it asks for, of the numbers that were measured. Its batch, and so the
// model that it trains, stays the same.
type Elastic struct {
	Training
}

// elasticResult is what came of one run. The figures are by job.
type elasticResult struct {
	// jcts are hours from arrival to end, waits those from arrival to start.
	jcts, waits []float64
	// unfairness is the hours from arrival to end ÷ those that the job would take alone on an equal part of the cluster.
	unfairness []float64
	// changes counts changes of size, and later starts.
	changes int
	stuck   map[int]bool
}

// Run plays every policy of ElasticPolicies with every workload, or load, and seed. It always plays the default scheduler
// of Kubernetes and static sizes, for comparison.
func (e *Elastic) Run() (*results.Elastic, error) {
	batches, trained, err := e.prepare()
	if err != nil {
		return nil, fmt.Errorf("run elastic: %w", err)
	}
	out := &results.Elastic{
		Kind: e.Kind, Nodes: e.Nodes, GPUs: e.GPUs, Columns: trained.Columns, LeftOut: trained.LeftOut, Seeds: e.Seeds,
	}
	policies := slices.Concat([]string{stockGangs, staticGangs}, e.Policies)
	each := len(e.Seeds) * len(batches)
	runs := make([]elasticResult, len(policies)*each)
	err = scenario.Each(len(runs), e.Progress, func(i int) error {
		policy, seed, batch := policies[i/each], e.Seeds[i%each/len(batches)], batches[i%len(batches)]
		if e.alike(policy) && i%each >= len(batches) {
			return nil
		}
		var err error
		if runs[i], err = e.play(policy, batch.jobs(seed), seed); err != nil {
			return fmt.Errorf("run elastic jobs of %s by policy %s with seed %d: %w", batch.name, policy, seed, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range runs {
		if e.alike(policies[i/each]) {
			runs[i] = runs[i-i%each+i%len(batches)]
		}
	}
	for p, policy := range e.Policies {
		of := runs[(p+2)*each : (p+3)*each]
		out.Results = append(out.Results, elasticComparedTo(runs[:each], runs[each:2*each], policy, of, len(batches)))
	}
	return out, nil
}

// alike reports whether the runs of a policy are the same for all seeds.
func (e *Elastic) alike(policy string) bool { return len(e.Loads) == 0 && policy != stockGangs }

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
// with the fastest number of workers there, close together. Of a part of a GPU it gets as much of the time.
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

// elasticComparedTo sums up the runs of a policy, which are of all columns for each seed in turn. The bases are those of the
// default scheduler and of static sizes.
func elasticComparedTo(stock, static []elasticResult, policy string, runs []elasticResult, columns int) results.ElasticResult {
	out := results.ElasticResult{Policy: policy}
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
	ran := func(x *elasticResult) float64 { return results.Mean(x.jcts) - results.Mean(x.waits) }
	out.MeanHours = of(func(i int) float64 { return results.Mean(runs[i].jcts) })
	out.P99Hours = of(func(i int) float64 { return quantile(runs[i].jcts, .99) })
	out.Wait = of(func(i int) float64 { return results.Mean(runs[i].waits) })
	out.WaitChange = of(func(i int) float64 { return results.Mean(runs[i].waits)/results.Mean(static[i].waits) - 1 })
	out.RunChange = of(func(i int) float64 { return ran(&runs[i])/ran(&static[i]) - 1 })
	out.P99Unfairness = of(func(i int) float64 { return quantile(runs[i].unfairness, .99) })
	out.WorstUnfairness = of(func(i int) float64 { return slices.Max(runs[i].unfairness) })
	out.Changes = of(func(i int) float64 { return float64(runs[i].changes) / float64(len(runs[i].jcts)) })
	out.Gain = of(func(i int) float64 { return results.Mean(stock[i].jcts) / results.Mean(runs[i].jcts) })
	out.GainUnstuck = of(func(i int) float64 {
		return results.Mean(without(stock[i].jcts, stock[i].stuck)) / results.Mean(without(runs[i].jcts, stock[i].stuck))
	})
	return out
}

// quantile returns the least value of which at least a part q are no more.
func quantile(values []float64, q float64) float64 {
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	at := int(q*float64(len(sorted))+.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}
