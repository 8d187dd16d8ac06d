package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/gangs"
	"github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

// lendingFlags are the flags of the command that are checked before a run.
type lendingFlags struct {
	jobs            gangsFlags
	serving         inferenceFlags
	rates           string
	promise, target float64
	costs           string
	form            command.Output
}

func lendingCommand() *cobra.Command {
	f := &lendingFlags{jobs: gangsFlags{parsePolicies: gangs.ParseElasticPolicies}}
	l := &gangs.Lending{}
	c := &cobra.Command{
		Use:   "lending --workload JOBS.csv --measured FOLDER --profile PROFILE.csv --model NAME --rates RATES.csv",
		Short: "Compares how much work a cluster does whose inference fleets lend GPUs to training jobs",
		Long: `Compares how much work a cluster does whose inference fleets lend GPUs to training jobs.

Fleets of inference replicas and training jobs share a cluster. The same rates of requests arrive at each fleet. Requests are played one by
one as by the command inference, jobs as by the command elastic, all in steps of 15 s. JOBS.csv comes again and again until the rates end; a
load draws so many times as many jobs each time. A replica serves after it has got a device and has loaded.

PROFILE.csv, NAME and RATES.csv are as for the command inference, --measured as for gangs. Of the rates, --from and --minutes are played; policies know
those before.

The policies are
  static, in order     each fleet has so many whole GPUs that the highest rate of the minutes before keeps the promise; jobs have the workers
                       that they ask for, and a job that does not fit stops those behind it
  static, others pass  the same, and those behind it pass
  HPA, in order        Kubernetes' autoscaler on utilisation sizes the fleets, on whole GPUs; replicas evict jobs, the newest first
  HPA, others pass     the same, and jobs pass
  tandem, not lent     what the controllers do: traffic.Decide sizes the fleets, on the share that serves the most within the promise;
                       elastic.Workers sizes the jobs, which do not get what fleets will need within the next hour
  tandem               the same, and they get that until it is needed
Jobs of tandem shrink for replicas that wait: after the notice and the cost of a change, a device is free. Where replicas have waited for two
minutes, workers are evicted. An evicted pod is killed after the grace period; where a job needs longer to save its state, it goes on
from its last checkpoint.

The table has, for each load and policy, the GPU-hours at solo speed that were done in an hour: of jobs (trained: the time that a job takes
alone with the workers that it asks for, times these), of requests (served: the time of a request on a whole GPU), and of both (useful), and by
how much that is more than with the first policy. A window is a minute of a fleet; it is broken where its p99 is above the promise. Lost is
the work that evictions cost. The figures are means over the seeds, windows their sums.

A spike multiplies the rate of one fleet by 2 to 4 within up to 60 s, at a random minute, while jobs use all that is left. The second table
has in how many of them the fleet had the GPUs that keep the promise at the height of the spike before the p99 of any minute was above it (in time), and in how
many it wanted them by then (asked). It waits from then until it has them.`,
		Example: `  evaluation lending --workload pollux-workload-1.csv --measured placements --measured scalability --measured validation \
    --profile v100_mps_latency_throughput.csv --model "vgg19 batch 1" --rates twitter_per_minute.csv --from 2880 --minutes 1440`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.parse(l); err != nil {
				return err
			}
			nameRepeats(c.ErrOrStderr(), l.Measured)
			bar := command.Progress(c)
			l.Progress = bar.Step
			results, err := l.Run()
			bar.Close()
			if err != nil {
				return err
			}
			return f.form.Write(c.OutOrStdout(), results)
		},
	}
	f.flags(c, l)
	return c
}

func (f *lendingFlags) flags(c *cobra.Command, l *gangs.Lending) {
	flags := c.Flags()
	flags.StringArrayVar(&f.jobs.workloads, "workload", nil, "CSV `file` with jobs (required)")
	flags.StringArrayVar(&f.jobs.measured, "measured", nil, "CSV `file` with step times or epochs, or a folder with such files; may be given several times (required)")
	flags.StringVar(&l.Kind, "kind", "aws", "`kind` of node whose step times count, as the names of the files say it")
	flags.IntVar(&l.Nodes, "nodes", 16, "`number` of nodes")
	flags.IntVar(&l.GPUs, "gpus", 4, "`number` of GPUs of each node")
	flags.DurationVar(&l.Restart, "restart", 30*time.Second, "`time` that a job loses at each start, 0s to 1h")
	flags.StringVar(&f.costs, "cost", "", "`times` that a change of size or a later start takes, by application, 0s to 1h: bert=120s,ncf=15s; default the restart time")
	flags.StringVar(&f.jobs.loads, "load", "0.5,1,1.5", "`loads`: so many times as many jobs as the workload has, separated by commas; above 0, at most 10; empty for spikes alone")
	flags.StringVar(&f.jobs.seeds, "seeds", "1-3", "`seeds` for what is drawn, a run each: single ones and ranges, separated by commas")
	flags.IntVar(&l.Fleets, "fleets", 6, "`number` of inference fleets, 1 to 64")
	flags.StringVar(&f.serving.profile, "profile", "", "CSV `file` with latencies by share (required)")
	flags.StringVar(&f.serving.workload, "model", "", "`name` of a configuration of the profile (required)")
	flags.StringVar(&f.serving.shares, "shares", "20,40,50,60,80,100", "`percents` of a GPU to choose from, separated by commas, 100 among them")
	flags.StringVar(&f.rates, "rates", "", "CSV `file` with rates of requests (required)")
	flags.IntVar(&f.serving.from, "from", 2880, "first `minute` of the rates that is played, 1 or more; policies know those before")
	flags.IntVar(&f.serving.minutes, "minutes", 1440, "`number` of minutes that are played")
	flags.Float64Var(&f.serving.scale, "scale", 4, "`factor` on all rates, above 0, at most 1000")
	flags.Float64Var(&f.promise, "promise", 3, "promised p99 as a `multiple` of the latency alone on the smallest share, above 0, at most 1000")
	flags.Float64Var(&f.target, "utilisation", .3, "`target` of the autoscaler, above 0, at most 1")
	flags.DurationVar(&f.serving.loadTime, "load-time", 25*time.Second, "`time` from the start of a replica until it serves, 0s to 1h")
	flags.StringVar(&f.serving.loadTimes, "load-times", "", "CSV `file` with the true load times (timestamp_anon, value in ms, container_ip), a random one for each replica; policies know --load-time only")
	flags.Float64Var(&f.serving.variation, "variation", .1, "squared coefficient of `variation` of the time of a request, 0 to 1")
	flags.Float64Var(&l.Neighbours, "neighbours", 1.1, "`factor` by which requests take longer on a share of a GPU than measured without neighbours, 1 to 10")
	flags.DurationVar(&l.Notice, "notice", 5*time.Second, "`time` from a decision until leaving workers save their state, 0s to 1h")
	flags.DurationVar(&l.Grace, "grace", 30*time.Second, "`time` until an evicted pod is killed, 0s to 1h")
	flags.DurationVar(&l.Checkpoint, "checkpoint", 30*time.Minute, "`time` between checkpoints of a job, 0s to 24h")
	flags.IntVar(&l.Spikes, "spikes", 100, "`number` of spikes, 0 to 10000")
	f.form.AddFlag(c)
}

func (f *lendingFlags) parse(l *gangs.Lending) (err error) {
	f.jobs.policies = "all"
	if err := f.jobs.parse(&l.Training); err != nil {
		return err
	}
	if l.Costs, err = parseCosts(f.costs); err != nil {
		return fmt.Errorf("flag --cost: %w", err)
	}
	f.serving.seed, f.serving.promises, f.serving.loads = 1, fmt.Sprint(f.promise), []string{f.rates}
	switch {
	case len(f.jobs.workloads) > 1:
		return fmt.Errorf("flag --workload: %d files, legal is one", len(f.jobs.workloads))
	case len(l.Loads) == 0 && l.Spikes == 0:
		return fmt.Errorf("flags --load and --spikes: no load and no spike, legal is one or more of either")
	case f.serving.workload == "":
		return fmt.Errorf("flag --model is missing: it names a configuration of the profile")
	case f.rates == "":
		return fmt.Errorf("flag --rates is missing: it names a CSV file")
	case f.serving.from < 1:
		return fmt.Errorf("flag --from: %d, legal is 1 or more", f.serving.from)
	case !(f.target > 0 && f.target <= 1):
		return fmt.Errorf("flag --utilisation: %v, legal is above 0 and at most 1", f.target)
	case !(l.Neighbours >= 1 && l.Neighbours <= 10):
		return fmt.Errorf("flag --neighbours: %v, legal is 1 to 10", l.Neighbours)
	case l.Fleets < 1 || l.Fleets > gangs.MaxFleets:
		return fmt.Errorf("flag --fleets: %d, legal is 1 to %d", l.Fleets, gangs.MaxFleets)
	case l.Spikes < 0 || l.Spikes > gangs.MaxSpikes:
		return fmt.Errorf("flag --spikes: %d, legal is 0 to %d", l.Spikes, gangs.MaxSpikes)
	}
	for _, x := range []struct {
		flag     string
		is, most time.Duration
	}{{"notice", l.Notice, time.Hour}, {"grace", l.Grace, time.Hour}, {"checkpoint", l.Checkpoint, 24 * time.Hour}} {
		if x.is < 0 || x.is > x.most {
			return fmt.Errorf("flag --%s: %v, legal is 0s to %v", x.flag, x.is, x.most)
		}
	}
	l.Utilisation, l.Times = f.target, f.promise
	return f.parseServing(l)
}

// parseServing reads what is as for the command inference.
func (f *lendingFlags) parseServing(l *gangs.Lending) error {
	s, err := f.serving.parse()
	if err != nil {
		return err
	}
	l.LoadTime, l.LoadTimes, l.Variation, l.Shares, l.Day = s.LoadTime, s.LoadTimes, s.Variation, s.Shares, s.Loads[0].Load
	slices.SortFunc(l.Shares, func(a, b measurements.Solo) int { return cmp.Compare(a.Share, b.Share) })
	if l.Shares[len(l.Shares)-1].Share != 1000 {
		return fmt.Errorf("flag --shares: %q has no 100", f.serving.shares)
	}
	all, err := inference.ReadLoad(f.rates)
	if err != nil {
		return fmt.Errorf("flag --rates: %w", err)
	}
	l.Before = all.Part(0, f.serving.from, f.serving.scale)
	return nil
}
