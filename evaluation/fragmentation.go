package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/placement"
)

func fragmentationCommand() *cobra.Command {
	var nodes, pods, policies, seeds, plot string
	var noTiming bool
	var form command.Output
	var filling experiment.Filling
	c := &cobra.Command{
		Use:   "fragmentation --nodes NODES.csv --pods PODS.csv",
		Short: "Fills a cluster from a trace and compares how much of it each policy can give away",
		Long: `Fills a cluster from a trace and compares how much of it each policy can give away.

Pods arrive one after the other in a random order, never leave, and are dropped where they do not fit. The better a policy
keeps the free GPUs usable, the more of them are allocated in the end. This is the experiment of "Beware of Fragmentation"
(Weng et al., USENIX ATC 2023); docs/experiments.md says where its data are, and compares the figures.

NODES.csv has the columns sn, cpu_milli, memory_mib, gpu, model; PODS.csv has name, cpu_milli, memory_mib, num_gpu,
gpu_milli and may have gpu_spec, the models that a pod may use ("V100M16|V100M32"). Both may be compressed by gzip.

The table has, for each policy, the mean and the standard deviation over the seeds of
  allocated %    the GPUs that are given away, when pods that ask for 80, 100 and 130 % of all GPUs have arrived
  at most %      what no policy exceeds at the end, even if it knew all pods in advance; gap is how far below that a plan
                 exists (with --bound=false, both are left out: they take seconds per seed)
  fragmented %   the GPUs that are idle and of no use to the usual pods, when 80 % have arrived
All are in percent of all GPUs.`,
		Example: `  evaluation fragmentation --nodes nodes.csv --pods pods.csv
  evaluation fragmentation --nodes nodes.csv --pods pods.csv --policy tandem,fgd --seeds 42 -o json
  evaluation fragmentation --nodes nodes.csv --pods pods.csv --plot out`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if filling.Policies, err = experiment.ParsePolicies(policies); err != nil {
				return fmt.Errorf("flag --policy: %w", err)
			}
			if filling.Seeds, err = scenario.ParseSeeds(seeds); err != nil {
				return fmt.Errorf("flag --seeds: %w", err)
			}
			if i := filling.Inflate; !(i >= experiment.MinInflate && i <= experiment.MaxInflate) {
				return fmt.Errorf("flag --inflate: %v, legal is %v to %v", i, experiment.MinInflate, experiment.MaxInflate)
			}
			if filling.Nodes, err = load(nodes, "--nodes", traces.OpenbNodes); err != nil {
				return err
			}
			if filling.Pods, err = load(pods, "--pods", traces.OpenbPods); err != nil {
				return err
			}
			if !noTiming {
				filling.Now = time.Now
			}
			return fill(c, &filling, &form, plot)
		},
	}
	flags := c.Flags()
	flags.StringVar(&nodes, "nodes", "", "CSV `file` with the nodes (required)")
	flags.StringVar(&pods, "pods", "", "CSV `file` with the pods (required)")
	flags.StringVar(&policies, "policy", experiment.All, "`names` of policies separated by commas, or all: "+strings.Join(placement.Policies(), ", "))
	flags.StringVar(&seeds, "seeds", "42-51", "`seeds` that the orders are drawn with, a run each: single ones and ranges, separated by commas")
	flags.Float64Var(&filling.Inflate, "inflate", 1.3, "repeat the pods until they ask for so many `times` all GPUs, 0.01 to 10")
	flags.BoolVar(&filling.Bound, "bound", true, "compute what any policy could allocate at most, which takes seconds per seed")
	flags.BoolVar(&noTiming, "no-timing", false, "leave out how long runs took, so that equal runs print equal bytes")
	flags.StringVar(&plot, "plot", "", "`folder` to draw into: allocation, fragmentation, each as .svg and .png")
	form.AddFlag(c)
	return c
}

// load reads one of the two traces.
func load[T any](path, flag string, read func(io.Reader, string) ([]T, error)) (_ []T, err error) {
	if path == "" {
		return nil, fmt.Errorf("flag %s is missing: it names a CSV file", flag)
	}
	r, err := csvtable.Open(path)
	if err != nil {
		return nil, fmt.Errorf("flag %s: %w", flag, err)
	}
	defer r.Close()
	all, err := read(r, path)
	if err != nil {
		return nil, fmt.Errorf("flag %s: %w", flag, err)
	}
	return all, nil
}

// fill plays the runs and prints what came of them.
func fill(c *cobra.Command, filling *experiment.Filling, form *command.Output, plot string) error {
	if err := folder(plot); err != nil {
		return err
	}
	bar := command.Progress(c)
	filling.Progress = bar.Step
	filled, err := filling.Run()
	bar.Close()
	if err != nil {
		return err
	}
	if err := form.Write(c.OutOrStdout(), filled.Fragmentation); err != nil {
		return err
	}
	return draw(c, plot, filled.Figures())
}
