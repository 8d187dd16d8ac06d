package experiment

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

// Bounds of a Colocation. Above them a run takes minutes.
const (
	MaxSharedGPUs = 1000
	MaxSharedJobs = 20_000
)

// Colocation lets a batch of jobs that have all arrived run on GPUs that they may share, and compares what policies
// make of it. Measured pairs give the speeds of jobs beside each other; each policy knows its own part of them.
type Colocation struct {
	// Pairs of one layout and GPU model with the profiles of the workloads.
	Pairs *PairSet
	// GPUs and Jobs: at least 1, at most MaxSharedGPUs and MaxSharedJobs.
	GPUs, Jobs int
	// Configurations bounds the configurations in a batch; 0 for all measured ones.
	Configurations int
	// Policies of SharingPolicies, and Seeds: at least one of each.
	Policies []string
	Seeds    []int64
	// Several goroutines call Progress with the number of complete runs; it may be nil.
	Progress func(done, total int)
}

// colocated is what came of one run.
type colocated struct {
	makespan, utilization     float64
	slowdownMean, slowdownMax float64
	oom                       int
}

// Run plays every policy with every seed, as many at once as Go uses processors. It also plays the exclusive policy,
// for comparison.
func (c *Colocation) Run() (*results.Colocation, error) {
	table, err := c.table()
	if err != nil {
		return nil, fmt.Errorf("share GPUs: %w", err)
	}
	policies := slices.Concat([]string{exclusive}, c.Policies)
	runs := make([]colocated, len(policies)*len(c.Seeds))
	err = scenario.Each(len(runs), c.Progress, func(i int) error {
		policy, seed := policies[i/len(c.Seeds)], c.Seeds[i%len(c.Seeds)]
		var err error
		if runs[i], err = c.play(table, policy, seed); err != nil {
			return fmt.Errorf("share GPUs by policy %s with seed %d: %w", policy, seed, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &results.Colocation{GPUs: c.GPUs, Jobs: c.Jobs, Configurations: c.Configurations, Seeds: c.Seeds}
	if c.Configurations == 0 {
		out.Configurations = len(table.configs)
	}
	base := runs[:len(c.Seeds)]
	for p, policy := range c.Policies {
		out.Results = append(out.Results, comparedTo(base, policy, runs[(p+1)*len(c.Seeds):(p+2)*len(c.Seeds)]))
	}
	return out, nil
}

func (c *Colocation) table() (*sharingTable, error) {
	switch {
	case len(c.Policies) == 0 || len(c.Seeds) == 0:
		return nil, errors.New("no policy or no seed")
	case c.GPUs < 1 || c.GPUs > MaxSharedGPUs:
		return nil, fmt.Errorf("%d GPUs, legal is 1 to %d", c.GPUs, MaxSharedGPUs)
	case c.Jobs < 1 || c.Jobs > MaxSharedJobs:
		return nil, fmt.Errorf("%d jobs, legal is 1 to %d", c.Jobs, MaxSharedJobs)
	}
	table, err := tableOfPairs(c.Pairs)
	if err != nil {
		return nil, err
	}
	if c.Configurations < 0 || c.Configurations > len(table.configs) {
		return nil, fmt.Errorf("%d configurations, legal is 1 to the %d that were measured, or 0 for all", c.Configurations, len(table.configs))
	}
	return table, nil
}

// play plays one run.
func (c *Colocation) play(t *sharingTable, policy string, seed int64) (colocated, error) {
	p, err := sharingPolicyOf(policy, t)
	if err != nil {
		return colocated{}, err
	}
	r := newSharingRun(t, p, c.GPUs, drawBatch(t, c.Configurations, c.Jobs, seed))
	if err := r.play(); err != nil {
		return colocated{}, err
	}
	return colocated{
		makespan: r.view.now, utilization: r.utilization(), slowdownMean: results.Mean(r.slowdowns),
		slowdownMax: slices.Max(r.slowdowns), oom: r.oom,
	}, nil
}

// comparedTo sums up the runs of a policy.
func comparedTo(base []colocated, policy string, runs []colocated) results.ColocationResult {
	of := func(figure func(seed int) float64) results.Spread {
		figures := make([]float64, 0, len(runs))
		for i := range runs {
			figures = append(figures, figure(i))
		}
		return results.SpreadOf(figures)
	}
	out := results.ColocationResult{
		Policy:           policy,
		MakespanRatio:    of(func(i int) float64 { return runs[i].makespan / base[i].makespan }),
		UtilizationRatio: of(func(i int) float64 { return runs[i].utilization / base[i].utilization }),
		SlowdownMean:     of(func(i int) float64 { return runs[i].slowdownMean }),
		SlowdownMax:      of(func(i int) float64 { return runs[i].slowdownMax }),
	}
	for i := range runs {
		out.OOM += runs[i].oom
		out.SlowdownWorst = max(out.SlowdownWorst, report.Round(runs[i].slowdownMax))
	}
	return out
}
