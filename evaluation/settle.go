package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/settle"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

func settleCommand() *cobra.Command {
	var loads, noises string
	var s settle.Settling
	var form command.Output
	c := &cobra.Command{
		Use:   "settle",
		Short: "Plays inference fleets in a closed loop with noise, and counts how often their sizes change",
		Long: `Plays inference fleets in a closed loop with noise, and counts how often their sizes change.

A fleet has one variant. Requests arrive at random times and queue at its replicas, each of which serves at most 20 a second. Every 15 s the decision
of the controller sees the rate and the p99 of the last minute, with noise, and replicas that it asks for load before they serve. The promise is a p99
of ten times the time of a request.

The table has a row for each world, load time and noise:
  changes a day          of the size, after the first hour
  at rest after min      from the change of the world, after two hours, to the last change of the size before an hour without one
  right size, most       the least constant size that keeps the promise all the time · the largest size after the first hour
  broken %               windows in which the promise was broken, of all with 100 requests or more
  GPU-hours ÷ constant   what the fleet had of the replicas of the right constant size`,
		Example: `  evaluation settle
  evaluation settle --load-times 1m --noise 0.1 --span 6h`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if s.Loads, err = durations(loads); err != nil {
				return fmt.Errorf("flag --load-times: %w", err)
			}
			if s.Noises, err = numbers(noises, mostNoise); err != nil || len(s.Noises) == 0 {
				return fmt.Errorf("flag --noise: %q has no numbers above 0, at most %g, separated by commas", noises, mostNoise)
			}
			if s.Span < leastSettle || s.Span > mostSettle {
				return fmt.Errorf("flag --span: %v, legal is %v to %v", s.Span, leastSettle, mostSettle)
			}
			bar := command.Progress(c)
			s.Progress = bar.Step
			result := s.Run()
			bar.Close()
			return form.Write(c.OutOrStdout(), result)
		},
	}
	flags := c.Flags()
	flags.StringVar(&loads, "load-times", "10s,1m,5m", "how long a replica loads: `durations` from 1s to 1h")
	flags.StringVar(&noises, "noise", "0.01,0.1,0.2", "`deviations` of the measured latency as a part of it, each above 0, at most 1")
	flags.DurationVar(&s.Span, "span", 25*time.Hour, "how long each run is, 3h to 240h")
	flags.Uint64Var(&s.Seed, "seed", 1, "`seed` of arrivals and noise")
	form.AddFlag(c)
	return c
}

const (
	mostNoise               = 1.
	leastSettle, mostSettle = 3 * time.Hour, 240 * time.Hour
	// leastLoad and mostLoad bound load times.
	leastLoad, mostLoad = time.Second, time.Hour
)

// durations reads a list of load times.
func durations(list string) (all []time.Duration, err error) {
	for part := range strings.SplitSeq(list, ",") {
		d, err := time.ParseDuration(part)
		if err != nil || d < leastLoad || d > mostLoad {
			return nil, fmt.Errorf("%q is no duration from %v to %v", part, leastLoad, mostLoad)
		}
		all = append(all, d)
	}
	return all, nil
}
