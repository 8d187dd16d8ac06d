package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

// colocateFlags are what colocate takes as text.
type colocateFlags struct{ pairs, profiles, policies, seeds string }

func colocateCommand() *cobra.Command {
	var given colocateFlags
	var form command.Output
	var sharing experiment.Colocation
	c := &cobra.Command{
		Use:   "colocate --pairs PAIRS.csv --profiles PROFILES.csv",
		Short: "Compares which jobs policies let share a GPU, by time, use and slowdown",
		Long: `Compares which jobs policies let share a GPU, by time, use and slowdown.

All jobs of a batch are there at the start. Each is of one of the measured configurations, with a duration alone that is
lognormal (median 1,800 s, σ 1.2), which no policy knows. A GPU has 24 GiB. Jobs that share one have the speeds of the
measured pairs, three of them the product of their pairs; a neighbour that comes or goes changes the speeds at once. A job
for which the memory does not suffice fails at its start and queues again.

PAIRS.csv and PROFILES.csv have workloads that were measured side by side and alone, in the layout of Lucid (Hu et al.,
ASPLOS 2023); docs/experiments.md says where the data are. Configurations that were measured beside less than half of the
others take no part, nor does VGG, whose speed alone is that of another configuration.

The policies are
  fifo              a GPU for each job, in order
  horus-2, horus-3  at most two or three jobs where Horus' cost is least
  least-loaded-3    at most three jobs on the GPU with the fewest, then the least used
  lucid             two jobs whose sizes add up to at most 2; knows the measured speeds
  linear-hinge-0.8  of the first 40 jobs the one with the least harm that linear-hinge expects, speeds of 0.8 or more
  oracle            of the first 40 jobs the one with the least harm, speeds of 0.8 or more; knows the measured speeds
  tandem            knows the profiles, and learns from the co-runs that it makes as the scheduler does
  tandem-measured   the same where all pairs were measured before

Makespan and utilization (SM time, at most 1 per GPU) are ratios to fifo with the same seed. The slowdown of a job is the
time that it ran ÷ its duration alone.`,
		Example: `  evaluation colocate --pairs colocate_info.csv --profiles single_data.csv
  evaluation colocate --pairs colocate_info.csv --profiles single_data.csv --configurations 13 --jobs 2500 -o json`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := given.parse(&sharing); err != nil {
				return err
			}
			return colocate(c, &sharing, &form)
		},
	}
	flags := c.Flags()
	flags.StringVar(&given.pairs, "pairs", "", "CSV `file` with pairs of workloads (required)")
	flags.StringVar(&given.profiles, "profiles", "", "CSV `file` with profiles of the workloads alone (required)")
	flags.IntVar(&sharing.GPUs, "gpus", 16, "`number` of GPUs")
	flags.IntVar(&sharing.Jobs, "jobs", 600, "`number` of jobs of a batch")
	flags.IntVar(&sharing.Configurations, "configurations", 0, "`number` of configurations that each seed draws for its jobs; 0 for all that were measured")
	flags.StringVar(&given.policies, "policy", experiment.All, "`names` of policies separated by commas, or all")
	flags.StringVar(&given.seeds, "seeds", "1-50", "`seeds` that the batches are drawn with, a run each: single ones and ranges, separated by commas")
	form.AddFlag(c)
	return c
}

// colocate plays the runs and prints what came of them.
func colocate(c *cobra.Command, sharing *experiment.Colocation, form *command.Output) error {
	bar := command.Progress(c)
	sharing.Progress = bar.Step
	results, err := sharing.Run()
	bar.Close()
	if err != nil {
		return err
	}
	return form.Write(c.OutOrStdout(), results)
}

func (f *colocateFlags) parse(sharing *experiment.Colocation) (err error) {
	if sharing.Policies, err = experiment.ParseSharingPolicies(f.policies); err != nil {
		return fmt.Errorf("flag --policy: %w", err)
	}
	if sharing.Seeds, err = scenario.ParseSeeds(f.seeds); err != nil {
		return fmt.Errorf("flag --seeds: %w", err)
	}
	switch {
	case sharing.GPUs < 1 || sharing.GPUs > experiment.MaxSharedGPUs:
		return fmt.Errorf("flag --gpus: %d, legal is 1 to %d", sharing.GPUs, experiment.MaxSharedGPUs)
	case sharing.Jobs < 1 || sharing.Jobs > experiment.MaxSharedJobs:
		return fmt.Errorf("flag --jobs: %d, legal is 1 to %d", sharing.Jobs, experiment.MaxSharedJobs)
	case sharing.Configurations < 0:
		return fmt.Errorf("flag --configurations: %d, legal is 0 or more", sharing.Configurations)
	case f.pairs == "":
		return errors.New("flag --pairs is missing: it names a CSV file")
	case f.profiles == "":
		return errors.New("flag --profiles is missing: it names a CSV file")
	}
	sharing.Pairs, err = loadPairSet(f.pairs, f.profiles)
	return err
}

// loadPairSet reads the pairs of one layout and GPU model.
func loadPairSet(pairs, profiles string) (*experiment.PairSet, error) {
	measured, err := loadAll([]string{pairs})
	if err != nil {
		return nil, fmt.Errorf("flag --pairs: %w", err)
	}
	alone, err := loadAll([]string{profiles})
	if err != nil {
		return nil, fmt.Errorf("flag --profiles: %w", err)
	}
	sets, err := experiment.PairSets(measured, alone, "oracle")
	if err != nil {
		return nil, err
	}
	if len(sets) > 1 {
		names := make([]string, 0, len(sets))
		for i := range sets {
			names = append(names, sets[i].Name())
		}
		return nil, fmt.Errorf("flag --pairs: %s has %s, want the pairs of one GPU model", pairs, strings.Join(names, " and "))
	}
	return &sets[0], nil
}
