package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

func inferenceBatchesCommand() *cobra.Command {
	var profile, processes string
	var form command.Output
	c := &cobra.Command{
		Use:   "inference-batches --profile PROFILE.csv",
		Short: "Compares what exclusive, time-sliced and shared GPUs serve over the batch size",
		Long: `Compares what exclusive, time-sliced and shared GPUs serve over the batch size.

PROFILE.csv is ParvaGPU's table (Lee et al., SC 2024), with the columns model, gpc, batch, procs, throughput_img_s (of one process) and
latency_s (of a batch; both are 0 where it does not fit). Only rows of whole GPUs count: those with gpc 7.

  exclusive     one process, from the table
  shared        several processes at a time by MPS, each with the batch size, from the table
  time-sliced   as many processes by turns: a model. A batch takes as long as alone while the others wait, and a change costs nothing:
                the GPU completes as much as an exclusive one, and a batch takes as many times as long as there are processes.
  larger batch  one process with a batch as large as those of all processes together, from the table
Rates are images a second of the whole GPU, and times are milliseconds for a batch. The table rounds those to a millisecond.`,
		Example: `  evaluation inference-batches --profile a100_mig_mps_profile.csv --processes 2`,
		Args:    command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			servings, err := loadServings(profile)
			if err != nil {
				return err
			}
			counts, err := parseProcesses(processes)
			if err != nil {
				return err
			}
			result, err := experiment.Batches(servings, counts)
			if err != nil {
				return fmt.Errorf("flags --profile and --processes: %w", err)
			}
			return form.Write(c.OutOrStdout(), result)
		},
	}
	flags := c.Flags()
	flags.StringVar(&profile, "profile", "", "CSV `file` with what models reach with several processes (required)")
	flags.StringVar(&processes, "processes", "2,3,4", "`numbers` of processes on a shared GPU, from 2 to 60, separated by commas")
	form.AddFlag(c)
	return c
}

// loadServings reads what models reach on MIG instances.
func loadServings(path string) ([]measurements.Serving, error) {
	if path == "" {
		return nil, fmt.Errorf("flag --profile is missing: it names a CSV file")
	}
	file, err := measurements.Load(path)
	if err != nil {
		return nil, fmt.Errorf("flag --profile: %w", err)
	}
	if len(file.Servings) == 0 {
		return nil, fmt.Errorf("flag --profile: %v: it does not say what models reach on MIG instances", file)
	}
	return file.Servings, nil
}

// parseProcesses reads numbers of processes: MPS serves at most 60 of a device.
func parseProcesses(list string) (counts []int, err error) {
	all, err := numbers(list, 60)
	for _, x := range all {
		if x < 2 || x != math.Trunc(x) {
			return nil, fmt.Errorf("flag --processes: %g is no whole number from 2 to 60", x)
		}
		counts = append(counts, int(x))
	}
	if err != nil || len(counts) == 0 {
		return nil, fmt.Errorf("flag --processes: %q has no whole numbers from 2 to 60", list)
	}
	return counts, nil
}
