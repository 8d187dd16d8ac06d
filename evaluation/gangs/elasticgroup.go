package gangs

import (
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/results"
)

// compared are the policies of which the results say how they differ from another one.
var compared = []struct{ policy, base string }{
	{"elastic-kubeflow", staticGangs},
	{"goodput", "elastic-fifo"},
	{"goodput", tiresiasGangs},
	{"goodput", "pollux-like"},
}

// group sums up the runs of a set.
func (e *Elastic) group(s *set, runs map[string]grid[elasticResult]) results.ElasticGroup {
	out := results.ElasticGroup{Jobs: string(s.format), Load: s.load}
	for c := range s.batches {
		out.Columns = append(out.Columns, s.batches[c].name)
		out.Asked = append(out.Asked, overSeeds(len(e.Seeds), func(k int) float64 {
			return asked(s.batches[c].jobs(e.Seeds[k]), e.Nodes*e.GPUs)
		}))
	}
	for _, policy := range e.Policies {
		out.Results = append(out.Results, elasticComparedTo(runs[stockGangs], runs[staticGangs], policy, runs[policy]))
	}
	for _, pair := range compared {
		if slices.Contains(e.Policies, pair.policy) && runs[pair.base] != nil {
			out.Compared = append(out.Compared, results.ElasticCompared{
				Policy: pair.policy, Base: pair.base, Columns: changesOf(runs[pair.base], runs[pair.policy]),
			})
		}
	}
	return out
}

// asked returns the GPU time for which jobs ask ÷ that of the cluster from the first to the last arrival; 0 where all
// arrive at once.
func asked(jobs []gangJob, gpus int) float64 {
	if between := jobs[len(jobs)-1].arrive - jobs[0].arrive; between > 0 {
		return gpuSeconds(jobs) / (float64(gpus) * between)
	}
	return 0
}

// gpuSeconds returns the GPU time for which jobs ask.
func gpuSeconds(jobs []gangJob) float64 {
	sum := 0.0
	for i := range jobs {
		sum += jobs[i].expected * float64(jobs[i].workers)
	}
	return sum
}

// elasticComparedTo sums up the runs of a policy. The bases are those of the default scheduler and of static sizes.
func elasticComparedTo(stock, static grid[elasticResult], policy string, runs grid[elasticResult]) results.ElasticResult {
	seeds, columns := len(runs), len(runs[0])
	of := func(s, c int) *outcome { return &runs[s][c].outcome }
	mean := func(figure func(x *elasticResult) float64) results.Spread {
		return overColumns(seeds, columns, func(s, c int) float64 { return figure(&runs[s][c]) })
	}
	change := func(figure func(x *elasticResult) float64) results.Spread {
		return overColumns(seeds, columns, func(s, c int) float64 { return changed(figure(&static[s][c]), figure(&runs[s][c])) })
	}
	out := results.ElasticResult{Policy: policy}
	out.Hours, out.MeanHours = hours(seeds, columns, of)
	out.P99Hours = mean(func(x *elasticResult) float64 { return quantile(x.jcts, .99) })
	out.Wait, out.WaitChange, out.RunChange = mean((*elasticResult).wait), change((*elasticResult).wait), change((*elasticResult).ran)
	out.P99Unfairness, out.WorstUnfairness = mean((*elasticResult).p99Unfairness), mean((*elasticResult).worstUnfairness)
	out.Changes = mean((*elasticResult).changesOfJob)
	out.Gain, out.GainUnstuck = gains(seeds, columns, func(s, c int) *outcome { return &stock[s][c].outcome }, of)
	return out
}

// changesOf compares the runs of a policy with those of a base, by column.
func changesOf(base, runs grid[elasticResult]) []results.ElasticChange {
	all := make([]results.ElasticChange, 0, len(runs[0]))
	for c := range runs[0] {
		of := func(figure func(x *elasticResult) float64) results.Spread {
			return overSeeds(len(runs), func(s int) float64 { return changed(figure(&base[s][c]), figure(&runs[s][c])) })
		}
		all = append(all, results.ElasticChange{
			Hours: of((*elasticResult).mean), Wait: of((*elasticResult).wait), Run: of((*elasticResult).ran),
			Changes:       of((*elasticResult).changesOfJob),
			P99Unfairness: of((*elasticResult).p99Unfairness), WorstUnfairness: of((*elasticResult).worstUnfairness),
		})
	}
	return all
}

// changed returns by which part a figure is more than its base; 0 where the base is 0.
func changed(base, figure float64) float64 {
	if base == 0 {
		return 0
	}
	return figure/base - 1
}

// mean returns the mean hours from arrival to end, wait those from arrival to start, and ran those from start to end.
func (x *elasticResult) mean() float64 { return results.Mean(x.jcts) }
func (x *elasticResult) wait() float64 { return results.Mean(x.waits) }
func (x *elasticResult) ran() float64  { return x.mean() - x.wait() }

// p99Unfairness and worstUnfairness are of the hours ÷ those alone on an equal part of the cluster.
func (x *elasticResult) p99Unfairness() float64   { return quantile(x.unfairness, .99) }
func (x *elasticResult) worstUnfairness() float64 { return slices.Max(x.unfairness) }

// changesOfJob returns the changes of size and later starts for each job.
func (x *elasticResult) changesOfJob() float64 { return float64(x.changes) / float64(len(x.jcts)) }
