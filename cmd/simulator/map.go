package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

func mapCommand() *cobra.Command {
	var form command.Output
	var at time.Duration
	var policy, seed string
	c := &cobra.Command{
		Use:   "map SCENARIO.yaml --at TIME",
		Short: "Shows who has which part of which GPU at a moment of a scenario, and who waits and why",
		Long: `Shows who has which part of which GPU at a moment of a scenario, and who waits and why.

Each line is one GPU, drawn to scale: the pods on it side by side, and dots where it is free. The pods that wait are below,
with what the scheduler would say of them. The JSON has the same.`,
		Example: `  simulator map examples/mixed.yaml --at 30m
  simulator map examples/mixed.yaml --at 2h15m --policy packed -o json`,
		Args: command.ScenarioFile,
		RunE: func(c *cobra.Command, args []string) error {
			run, err := playFor(c, args[0], at, policy, seed)
			if err != nil {
				return err
			}
			m, err := run.History.MapAt(at)
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), report.Map{Map: m})
		},
	}
	form.AddFlag(c)
	addMoment(c, &at, &policy, &seed)
	return c
}

// choose returns the run of a policy and a seed; an empty value stands for the first.
func choose(r *scenario.Result, policy, seed string) (*scenario.Run, error) {
	known := make([]string, 0, len(r.Runs))
	for i := range r.Runs {
		run := &r.Runs[i]
		name := strconv.FormatInt(run.Seed, 10)
		if (policy == "" || policy == run.Policy) && (seed == "" || seed == name) {
			return run, nil
		}
		known = append(known, run.Policy+" with seed "+name)
	}
	return nil, fmt.Errorf("flags --policy %q and --seed %q: the scenario has %s", policy, seed, strings.Join(known, ", "))
}
