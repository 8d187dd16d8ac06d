package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

// preemptionFlags are what preemption takes as text.
type preemptionFlags struct {
	pods, nodes, prices    string
	loads, policies, seeds string
}

func preemptionCommand() *cobra.Command {
	var given preemptionFlags
	var form command.Output
	var preemption experiment.Preemption
	c := &cobra.Command{
		Use:   "preemption --pods PODS.csv",
		Short: "Compares who is evicted for urgent jobs, and what that costs the others",
		Long: `Compares who is evicted for urgent jobs, and what that costs the others.

PODS.csv is a trace of openb (Alibaba 2023), of Philly (in the form of Pollux), or of DLRM serving (Alibaba 2025); docs/experiments.md
says where they are. A run plays jobs that follow each other in the trace, from one that the seed draws; a trace that has fewer is
played again from its start. Durations are cut at --longest, and the arrivals stretched until the jobs ask for --load times the
cluster while they arrive. Jobs without GPUs or without an end are left out. A job of several GPUs is one pod where a node has as
many GPUs, else a gang of pods that are alike.

Pods of openb have the priority of their class of service: Guaranteed above LS above Burstable above BE; the first two are high.
Of the other traces a part that --high gives is high, drawn by the seed. One in five of the other jobs is in a budget: ten jobs
share one that lets one pod be missing. An evicted job waits again, and starts anew, or from its last checkpoint.

The policies are
  none      nobody is evicted
  default   the rules of the stock scheduler's DefaultPreemption, for each pod by itself: it looks at nodes in an order that the
            seed draws until 100 of them, or a tenth, have victims. Gangs that it leaves with too few members go whole, and the
            members of a gang get their room one after the other
  tandem    package preemption: the cheapest units that make room, at --prices

The table has, for each load and policy, the wait of high jobs (median and 99th percentile) and the mean wait of the others, the
preemptions of a run, victims of each, pods that fell with their gang, the GPU-hours of work that was undone, that ÷ the same of
default (the mean of the seeds' ratios), the lost work ÷ what default would have undone for the same jobs at the same moments (same),
the lost work ÷ the least that any lawful victims would have lost at each of these moments (least, budgets aside; a search
that was cut counts 0), and the victims beyond what budgets allow. Each preemption is looked at again, without
the code that decided it: void are those that made no room, needless the victims that could have stayed, unlawful those of no
lower priority. Cut are the searches that a bound ended, never placed the jobs that had no place in the end.`,
		Example: `  evaluation preemption --pods openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --sample 40
  evaluation preemption --pods philly.csv --sample 16 --gpus 8 --load 0.8,1.2 -o json
  evaluation preemption --pods disaggregated_DLRM_trace.csv --sample 923 --jobs 60000 --load 1.2 --checkpoint 30m`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := given.parse(&preemption); err != nil {
				return err
			}
			bar := command.Progress(c)
			preemption.Progress = bar.Step
			results, err := preemption.Run()
			bar.Close()
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), results)
		},
	}
	given.flags(c, &preemption)
	form.AddFlag(c)
	return c
}

func (f *preemptionFlags) flags(c *cobra.Command, p *experiment.Preemption) {
	flags := c.Flags()
	flags.StringVar(&f.pods, "pods", "", "CSV `file` with jobs (required)")
	flags.StringVar(&f.nodes, "nodes", "", "CSV `file` with nodes of openb; without it all nodes are alike, and have CPU and memory in plenty")
	flags.IntVar(&p.Nodes, "sample", 16, "`number` of nodes, drawn by the seed from those of --nodes")
	flags.IntVar(&p.GPUs, "gpus", 8, "`number` of GPUs of each node, without --nodes, and of a pod at most")
	flags.IntVar(&p.Jobs, "jobs", 1500, "`number` of jobs of a run")
	flags.StringVar(&f.loads, "load", "0.6,0.8,1,1.2", "the jobs ask for so many `times` the GPUs; separated by commas")
	flags.Float64Var(&p.High, "high", .1, "`part` of the jobs that are urgent, 0 to 1, where the trace does not tell")
	flags.DurationVar(&p.Longest, "longest", 24*time.Hour, "`time` at which durations are cut, 1s or more")
	flags.DurationVar(&p.Grace, "grace", 30*time.Second, "`time` that an evicted pod takes to leave, 0s or more")
	flags.DurationVar(&p.Checkpoint, "checkpoint", 0, "`time` of work after which jobs save it, 0s for never")
	flags.StringVar(&f.policies, "policy", experiment.All, "`names` of policies separated by commas, or all")
	flags.StringVar(&f.prices, "prices", "", "what harms cost tandem, each as a `time` of one GPU, for example violation=24h,step=1h,broken=1h,serving=24h,victim=1m; others are the scheduler's defaults")
	flags.StringVar(&f.seeds, "seeds", "1-5", "`seeds` for what is drawn, a run each: single ones and ranges, separated by commas")
}

func (f *preemptionFlags) parse(p *experiment.Preemption) (err error) {
	if p.Policies, err = experiment.ParsePreemptionPolicies(f.policies); err != nil {
		return fmt.Errorf("flag --policy: %w", err)
	}
	if p.Seeds, err = scenario.ParseSeeds(f.seeds); err != nil {
		return fmt.Errorf("flag --seeds: %w", err)
	}
	if p.Loads, err = parseLoads(f.loads); err != nil {
		return fmt.Errorf("flag --load: %w", err)
	}
	if f.pods == "" {
		return errors.New("flag --pods is missing: it names a CSV file")
	}
	if p.Prices, err = experiment.ParsePrices(f.prices); err != nil {
		return fmt.Errorf("flag --prices: %w", err)
	}
	if p.Trace, err = measurements.Load(f.pods); err != nil {
		return fmt.Errorf("flag --pods: %w", err)
	}
	if f.nodes == "" {
		return nil
	}
	if p.Hosts, err = measurements.Load(f.nodes); err != nil {
		return fmt.Errorf("flag --nodes: %w", err)
	}
	return nil
}
