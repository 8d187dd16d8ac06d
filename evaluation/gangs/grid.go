package gangs

import (
	"fmt"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

// gangBatch is the jobs of one column of a table, with a name that those of all seeds share.
type gangBatch struct {
	name string
	jobs func(seed int64) []gangJob
	// draws says that the jobs differ by the seed.
	draws bool
}

// outcome is what every run tells: the hours from arrival to end by job, and which jobs the default scheduler had to start
// anew.
type outcome struct {
	jcts  []float64
	stuck map[int]bool
}

// grid is the runs of one policy, by seed, then by column.
type grid[R any] [][]R

// columns returns the runs of some columns.
func (r grid[R]) columns(from, to int) grid[R] {
	part := make(grid[R], 0, len(r))
	for _, seed := range r {
		part = append(part, seed[from:to])
	}
	return part
}

// rules are how a table's runs are played. The function draws reports whether a policy differs by the seed.
type rules[R any] struct {
	draws func(policy string) bool
	play  func(policy string, jobs []gangJob, seed int64) (R, error)
}

// playGrid plays every policy with every column and seed, and returns the runs by policy. If neither the jobs nor the
// policy differ by the seed, one run stands for all seeds. A policy may be in the list more than once.
func playGrid[R any](g *Training, batches []gangBatch, policies []string, as rules[R]) (map[string]grid[R], error) {
	type cell struct {
		policy       string
		seed, column int
	}
	all := map[string]grid[R]{}
	var cells []cell
	for _, policy := range policies {
		if all[policy] != nil {
			continue
		}
		runs := make(grid[R], len(g.Seeds))
		for s := range g.Seeds {
			runs[s] = make([]R, len(batches))
			for c := range batches {
				if s == 0 || batches[c].draws || as.draws(policy) {
					cells = append(cells, cell{policy, s, c})
				}
			}
		}
		all[policy] = runs
	}
	err := scenario.Each(len(cells), g.Progress, func(i int) error {
		at := cells[i]
		batch, seed := &batches[at.column], g.Seeds[at.seed]
		run, err := as.play(at.policy, batch.jobs(seed), seed)
		if err != nil {
			return fmt.Errorf("run jobs of %s by policy %s with seed %d: %w", batch.name, at.policy, seed, err)
		}
		all[at.policy][at.seed][at.column] = run
		return nil
	})
	if err != nil {
		return nil, err
	}
	for policy, runs := range all {
		for s := range runs {
			for c := range batches {
				if !batches[c].draws && !as.draws(policy) {
					runs[s][c] = runs[0][c]
				}
			}
		}
	}
	return all, nil
}

// overSeeds sums up a figure of each seed.
func overSeeds(seeds int, figure func(s int) float64) results.Spread {
	all := make([]float64, 0, seeds)
	for s := range seeds {
		all = append(all, figure(s))
	}
	return results.SpreadOf(all)
}

// overColumns sums up, over the seeds, the mean of a figure of each column.
func overColumns(seeds, columns int, figure func(s, c int) float64) results.Spread {
	return overSeeds(seeds, func(s int) float64 {
		sum := 0.0
		for c := range columns {
			sum += figure(s, c)
		}
		return sum / float64(columns)
	})
}

// hours returns the mean hours from arrival to end of each column, and their mean.
func hours(seeds, columns int, of func(s, c int) *outcome) (each []results.Spread, mean results.Spread) {
	for c := range columns {
		each = append(each, overSeeds(seeds, func(s int) float64 { return results.Mean(of(s, c).jcts) }))
	}
	return each, overColumns(seeds, columns, func(s, c int) float64 { return results.Mean(of(s, c).jcts) })
}

// gains returns the hours of the base ÷ those of other runs, for all jobs and without those that were stuck in the base.
func gains(seeds, columns int, base, of func(s, c int) *outcome) (gain, unstuck results.Spread) {
	gain = overColumns(seeds, columns, func(s, c int) float64 {
		return results.Mean(base(s, c).jcts) / results.Mean(of(s, c).jcts)
	})
	unstuck = overColumns(seeds, columns, func(s, c int) float64 {
		stuck := base(s, c).stuck
		return results.Mean(without(base(s, c).jcts, stuck)) / results.Mean(without(of(s, c).jcts, stuck))
	})
	return gain, unstuck
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
