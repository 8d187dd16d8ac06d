package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/lifetimes"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
)

func lifetimesCommand() *cobra.Command {
	var files []string
	var boosting string
	var form command.Output
	e := &lifetimes.Experiment{Config: lifetime.Defaults()}
	c := &cobra.Command{
		Use:   "lifetimes --trace TRACE.csv",
		Short: "Compares predictions of how long jobs still run",
		Long: `Compares predictions of how long jobs still run.

Each job from --from to --to of a trace, in the order of starts, is predicted when it starts, and after 10 minutes, an hour and six hours if it
still runs. A prediction knows the jobs that had ended before. It is a distribution, of which the nine deciles are judged:
  relative error       |predicted median - remaining time| ÷ remaining time, the median of all predictions
  pinball              the loss of quantiles, in hours and of the natural logarithm, the mean of all
  covered %            remaining times from the first decile to the last; 80 is right

tandem is what pkg/lifetime learns, job by job. The rivals are fitted anew for each tenth of the predictions: the median of the user's jobs, a linear
regression of the logarithm, and gradient boosting by a program, such as
  --boosting "/usr/bin/python3 evaluation/lifetimes/boosting.py"
which needs scikit-learn. Their distributions are those of their own errors, given the age.

TRACE.csv is in any layout that "simulator run" knows and that has durations.`,
		Example: `  evaluation lifetimes --trace philly.csv --trace openb_pod_list_default.csv
  evaluation lifetimes --trace philly.csv --from .25 --to .5 --strength 8`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if e.Traces, err = loadTraces(files); err != nil {
				return err
			}
			e.Boosting = strings.Fields(boosting)
			out, err := e.Run()
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), out)
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&files, "trace", nil, "CSV `file` with jobs; may be given several times (required)")
	flags.StringVar(&boosting, "boosting", "", "`program` with arguments that fits gradient boosting; default none")
	flags.Float64Var(&e.From, "from", .5, "`part` of the trace from which jobs are predicted, 0 to 1")
	flags.Float64Var(&e.To, "to", 1, "`part` of the trace up to which jobs are predicted, 0 to 1")
	flags.Float64Var(&e.Config.Strength, "strength", e.Config.Strength, "`number` of pods of a group that weigh as much as the coarser groups, above 0")
	flags.Float64Var(&e.Config.Memory, "memory", e.Config.Memory, "`number` of pods of a user that a group remembers, 1 or more")
	flags.Float64Var(&e.Config.Recent, "recent", e.Config.Recent, "`number` of last pods that a group remembers apart, 1 or more")
	form.AddFlag(c)
	return c
}

func shortestCommand() *cobra.Command {
	var files []string
	var loads string
	var form command.Output
	s := &lifetimes.Shortest{Config: lifetime.Defaults()}
	c := &cobra.Command{
		Use:   "shortest --trace TRACE.csv",
		Short: "Compares orders of jobs by true and by predicted remaining times",
		Long: `Compares orders of jobs by true and by predicted remaining times.

The jobs of the second half of a trace arrive at a cluster of GPUs that are all alike; predictions know those of the first half, and each job that
has ended. A job takes as many GPUs as it asks for or waits, and others that fit pass it. Where the order is by remaining time, jobs stop for
shorter ones and go on later, at no cost.

The table has the mean time from arrival to end in the order of arrivals (FIFO), of the true remaining times, and of the predicted ones by the
Gittins index of their distribution; and which part of what true times gain over FIFO the predictions gain, by that index, by the median and by the
mean. A gain of less than a hundredth has no parts.

TRACE.csv is in any layout that "simulator run" knows and that has durations.`,
		Example: `  evaluation shortest --trace philly.csv --gpus 128 --jobs 3000 --load 0.8,1`,
		Args:    command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if s.Traces, err = loadTraces(files); err != nil {
				return err
			}
			if s.Loads, err = parseLoads(loads); err != nil {
				return fmt.Errorf("flag --load: %w", err)
			}
			if len(s.Loads) == 0 {
				return errors.New("flag --load: no number, legal is one or more")
			}
			out, err := s.Run()
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), out)
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&files, "trace", nil, "CSV `file` with jobs; may be given several times (required)")
	flags.IntVar(&s.GPUs, "gpus", 128, "`number` of GPUs of the cluster")
	flags.IntVar(&s.Jobs, "jobs", 3000, "`number` of jobs that are played at most")
	flags.StringVar(&loads, "load", "0.5,0.8,1,1.5", "`loads`: what jobs ask for while they arrive, of what the cluster has, separated by commas; above 0, at most 10")
	form.AddFlag(c)
	return c
}

// loadTraces reads the files of the flag --trace.
func loadTraces(files []string) ([]*traces.Trace, error) {
	if len(files) == 0 {
		return nil, errors.New("flag --trace is missing: it names a CSV file")
	}
	all := make([]*traces.Trace, len(files))
	for i, f := range files {
		t, err := traces.Load(f)
		if err != nil {
			return nil, fmt.Errorf("flag --trace: %w", err)
		}
		all[i] = t
	}
	return all, nil
}
