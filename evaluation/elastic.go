package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/gangs"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

func elasticCommand() *cobra.Command {
	given := gangsFlags{parsePolicies: gangs.ParseElasticPolicies}
	var form command.Output
	var elastic gangs.Elastic
	var costs, models string
	c := &cobra.Command{
		Use:   "elastic --workload JOBS.csv --measured FOLDER",
		Short: "Compares how jobs wait and run whose number of workers changes",
		Long: `Compares how jobs wait and run whose number of workers changes.

The jobs are those of the command gangs, but for their sizes: a job runs with any measured number of workers from one, or
the part of what it asks for that --least gives, to twice as many as it asks for. Its batch stays the same. After a change
of its size a job does no work for a while: for the restart time, or for the time of its application that --cost gives. The
same holds where a policy stops a job.

A workload may be a trace of Muri (Zhao et al., SIGCOMM 2022) too. Of such a trace the seed chooses as many jobs in a row as
--jobs says. Each trains the measured application that stands for its model (--models) for as long as the trace says, with
the GPUs that it asks for. A job that asks for more GPUs than the cluster has is left out.

With --load each workload is played at each load by itself. Load 2 of a workload of Pollux is twice as many jobs in the same
time: the workload, and as many jobs of the others. Load 0.5 is half of its jobs. Load 2 of a trace of Muri has the same
jobs, and they arrive so fast that they ask for twice the GPU time that there is until the last one arrives; without --load
it is 1.

The policies are
  kubernetes        pod by pod, sizes as asked for; a job of which a part has waited for the rest for ten minutes is deleted
                    and created again
  static            the scheduler without elasticity: whole jobs close together, sizes as asked for, others pass
  round-robin       sizes as asked for; a job that has run for ten minutes stops where others wait, and goes behind them
  tiresias          sizes as asked for; least attained service in two queues, jobs are stopped for others
  pollux-like       Pollux with fixed batches: the power mean of the speed-ups, relative to an equal share, by local search
  elastic-kubeflow  grows while less than 90 % of the GPUs are in use, shrinks the largest for a job that has waited a minute
  dragon            shrinks to the least size for a job that has waited for 30 s, grows to the largest after a minute of quiet
  elastic-fifo      least sizes in the order of arrival, what is left one by one
  elastic-srjf      the same in the order of the time that jobs still take, which the policy knows
  elastic-srjf-predicted  the same, and the policy predicts that time by the jobs that have ended in the run so far
  elastic-srjf-progress   the same, and jobs tell how many hundredths of their work they have done
  ffdl              least sizes in the order of arrival, what is left by the largest sum of speed-ups
  goodput           what ships: proportional fairness of speed-ups, by age, when a change repays its cost
  goodput-learned   the same, and it knows the speeds only at the numbers of workers and nodes that were seen
From elastic-kubeflow on the policies are those of pkg/elastic. All that weigh speeds know the measured ones on as few nodes
as possible and on one node more, but for the last.

There is a table for each format of workloads and each load. It has, for each policy, the mean hours from arrival to end for each workload, their mean, the 99th percentile, the
mean time from arrival to start (wait) and from start to end (run) against static, the hours ÷ those that a job would take
alone on an equal part of the cluster (unfair; the 99th percentile and the worst job), changes of size and later starts for
each job, and the hours by kubernetes ÷ these for all jobs (gain) and without those that kubernetes started anew (unstuck).
Below it are, for each workload, the changes of elastic-kubeflow against static and of goodput against elastic-fifo, tiresias
and pollux-like: of the mean hours, waits and times of running, of the changes of size and of the unfairness.`,
		Example: `  evaluation elastic --workload workload-1.csv --workload workload-2.csv --measured placements --measured scalability --measured validation
  evaluation elastic --workload workload-1.csv --measured traces --load 0.5,1,1.5,2 --policy kubernetes,elastic-fifo,goodput
  evaluation elastic --workload workload-1.csv --workload trace1.csv --measured traces --load 0.5,1,1.5,2 --seeds 1-3
  evaluation elastic --workload workload-1.csv --measured traces --cost bert=120s,cifar10=50s,ncf=15s -o json`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := given.parse(&elastic.Training); err != nil {
				return err
			}
			var err error
			if elastic.Costs, err = parseCosts(costs); err != nil {
				return fmt.Errorf("flag --cost: %w", err)
			}
			if elastic.Models, err = gangs.ParseModels(models); err != nil {
				return fmt.Errorf("flag --models: %w", err)
			}
			nameRepeats(c.ErrOrStderr(), elastic.Measured)
			bar := command.Progress(c)
			elastic.Progress = bar.Step
			results, err := elastic.Run()
			bar.Close()
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), results)
		},
	}
	given.flags(c, &elastic.Training)
	c.Flags().StringVar(&costs, "cost", "", "`times` that a change of size or a later start takes, by application, 0s to 1h: bert=120s,ncf=15s; default the restart time")
	c.Flags().Float64Var(&elastic.Least, "least", 0, "the least workers of a job, as a `part` of those that it asks for, 0 to 1; 0 for one worker")
	c.Flags().IntVar(&elastic.Jobs, "jobs", 160, "`number` of jobs in a row of each trace of Muri")
	c.Flags().StringVar(&models, "models", gangs.MuriModels, "`applications` that stand for the models of Muri, with the samples of a worker in a step")
	c.Flags().Lookup("load").Usage = "`loads` at which each workload is played, separated by commas; above 0, at most 10"
	form.AddFlag(c)
	return c
}

// parseCosts reads "bert=120s,ncf=15s".
func parseCosts(list string) (map[string]time.Duration, error) {
	costs := map[string]time.Duration{}
	if list == "" {
		return costs, nil
	}
	for _, part := range strings.Split(list, ",") {
		app, text, ok := strings.Cut(part, "=")
		cost, err := time.ParseDuration(text)
		switch {
		case !ok || app == "" || err != nil || cost < 0 || cost > time.Hour:
			return nil, fmt.Errorf("%q is no application with a time from 0s to 1h, as bert=120s", part)
		case costs[app] > 0:
			return nil, fmt.Errorf("%s appears twice", app)
		}
		costs[app] = cost
	}
	return costs, nil
}
