package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

func snapshotCommand() *cobra.Command {
	var at time.Duration
	var policy, seed string
	c := &cobra.Command{
		Use:   "snapshot SCENARIO.yaml --at TIME",
		Short: "Writes the cluster at a moment of a scenario as a scheduler publishes it",
		Long: `Writes the cluster at a moment of a scenario as a scheduler publishes it.

The JSON has the form of the snapshot that Tandem's scheduler serves: docs/guides/snapshot.md. Programs that read the one
read the other. Times count from 1970-01-01T00:00:00Z, the start of the scenario.`,
		Example: `  simulator snapshot examples/mixed.yaml --at 30m > snapshot.json`,
		Args:    command.ScenarioFile,
		RunE: func(c *cobra.Command, args []string) error {
			run, err := playFor(c, args[0], at, policy, seed)
			if err != nil {
				return err
			}
			s, err := run.History.SnapshotAt(at)
			if err != nil {
				return err
			}
			raw, err := snapshotjson.Write(s)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(append(raw, '\n'))
			return err
		},
	}
	addMoment(c, &at, &policy, &seed)
	return c
}

// addMoment adds the flags that name a moment of a run.
func addMoment(c *cobra.Command, at *time.Duration, policy, seed *string) {
	c.Flags().DurationVar(at, "at", 0, "`time` from the start of the scenario, as 90s, 30m or 2h15m")
	c.Flags().StringVar(policy, "policy", "", "`name` of one of the scenario's policies; without it the first")
	c.Flags().StringVar(seed, "seed", "", "`number` of one of the scenario's seeds; without it the first")
}

// playFor plays a scenario and returns the run that the flags name.
func playFor(c *cobra.Command, path string, at time.Duration, policy, seed string) (*scenario.Run, error) {
	if at < 0 {
		return nil, fmt.Errorf("flag --at: %v, legal is 0s or later", at)
	}
	s, err := scenario.Read(path)
	if err != nil {
		return nil, err
	}
	bar := command.Progress(c)
	bar.Parts = scenario.Hundredths
	result, err := s.Play(bar.Step)
	bar.Close()
	if err != nil {
		return nil, err
	}
	return choose(result, policy, seed)
}
