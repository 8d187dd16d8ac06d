package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

func weightsCommand() *cobra.Command {
	var nodes, pods, profiles, seeds, weights string
	var form command.Output
	var weighing experiment.Weighing
	c := &cobra.Command{
		Use:   "weights --nodes NODES.csv --pods PODS.csv --profiles PROFILES.csv",
		Short: "Compares what the weight of interference costs in allocation and brings in speed",
		Long: `Compares what the weight of interference costs in allocation and brings in speed.

The cluster is filled as by "evaluation fragmentation", with the policy tandem. Every pod that asks for a part of a GPU is one
of the workloads of PROFILES.csv, drawn by the seed. Speeds are those that the default interference model predicts, so the
figures are about the weight, not about errors of prediction. The defaults of GPUShareArgs.weights come from here:
docs/experiments.md has the figures.

NODES.csv and PODS.csv are as for "evaluation fragmentation". PROFILES.csv has what workloads use of a GPU that they have
alone, in a layout that "evaluation interference --profiles" takes.

The table has, for each weight, the mean and the standard deviation over the seeds, when all pods have arrived, of
  allocated %     the GPUs that are given away
  lost %          the GPUs whose work the tenants lose by each other
  mean slowdown, worst slowdown   of the pods with a part of a GPU`,
		Example: `  evaluation weights --nodes nodes.csv --pods pods.csv --profiles single_data.csv
  evaluation weights --nodes nodes.csv --pods pods.csv --profiles single_data.csv --weights 0,100 --seeds 42 -o json`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if weighing.Weights, err = parseWeights(weights); err != nil {
				return fmt.Errorf("flag --weights: %w", err)
			}
			if weighing.Seeds, err = scenario.ParseSeeds(seeds); err != nil {
				return fmt.Errorf("flag --seeds: %w", err)
			}
			if i := weighing.Inflate; !(i >= experiment.MinInflate && i <= experiment.MaxInflate) {
				return fmt.Errorf("flag --inflate: %v, legal is %v to %v", i, experiment.MinInflate, experiment.MaxInflate)
			}
			if weighing.Sample < 1 {
				return fmt.Errorf("flag --sample: %d, legal is 1 or more", weighing.Sample)
			}
			if weighing.Nodes, err = load(nodes, "--nodes", traces.OpenbNodes); err != nil {
				return err
			}
			if weighing.Pods, err = load(pods, "--pods", traces.OpenbPods); err != nil {
				return err
			}
			if weighing.Profiles, err = loadProfiles(profiles); err != nil {
				return err
			}
			bar := command.Progress(c)
			weighing.Progress = bar.Step
			out, err := weighing.Run()
			bar.Close()
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), out)
		},
	}
	flags := c.Flags()
	flags.StringVar(&nodes, "nodes", "", "CSV `file` with the nodes (required)")
	flags.StringVar(&pods, "pods", "", "CSV `file` with the pods (required)")
	flags.StringVar(&profiles, "profiles", "", "CSV `file` with what workloads use alone (required)")
	flags.StringVar(&weights, "weights", "0,25,50,100,200,400,1000", "`weights` of interference in percent, 0 to 1000, separated by commas")
	flags.StringVar(&seeds, "seeds", "42-51", "`seeds` that nodes, orders and workloads are drawn with, a run each")
	flags.IntVar(&weighing.Sample, "sample", 100, "`number` of nodes, drawn by the seed")
	flags.Float64Var(&weighing.Inflate, "inflate", 1.3, "repeat the pods until they ask for so many `times` all GPUs, 0.01 to 10")
	flags.BoolVar(&weighing.Burst, "burst", false, "let every share use all SMs of its GPU; else it is capped at what it asks for")
	form.AddFlag(c)
	return c
}

// parseWeights reads percentages, each once.
func parseWeights(list string) ([]int64, error) {
	parts := strings.Split(list, ",")
	all := make([]int64, 0, len(parts))
	for _, part := range parts {
		w, err := strconv.ParseInt(part, 10, 64)
		switch {
		case err != nil || w < 0 || w > 1000:
			return nil, fmt.Errorf("%q is no whole number from 0 to 1000", part)
		case slices.Contains(all, w):
			return nil, fmt.Errorf("%d appears twice", w)
		}
		all = append(all, w)
	}
	return all, nil
}

// loadProfiles reads what workloads use alone.
func loadProfiles(path string) ([]measurements.Solo, error) {
	if path == "" {
		return nil, fmt.Errorf("flag --profiles is missing: it names a CSV file")
	}
	t, err := measurements.Load(path)
	if err != nil {
		return nil, fmt.Errorf("flag --profiles: %w", err)
	}
	if len(t.Solos) == 0 {
		return nil, fmt.Errorf("flag --profiles: %v: it has no workloads alone", t)
	}
	return t.Solos, nil
}
