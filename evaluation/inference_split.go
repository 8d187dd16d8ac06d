package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

func inferenceSplitCommand() *cobra.Command {
	var mixes []string
	var busy string
	var splits inference.Splits
	var form command.Output
	c := &cobra.Command{
		Use:   "inference-split",
		Short: "Plays how requests are divided over unlike GPUs, and compares latencies and rates with the formulas",
		Long: `Plays how requests are divided over unlike GPUs, and compares latencies and rates with the formulas.

A mix has what each GPU serves when it is always busy, in requests a second. Requests arrive at random times, each goes to a random GPU by the
parts of the division, waits there for those before it, and takes an exponential time: each GPU is an M/M/1 queue.

The divisions are
  uniform       equal parts
  proportional  parts in proportion to what each GPU serves, as in SMIF
  mean-optimal  the least mean latency of all requests
  p99-optimal   the least p99 of the slowest GPU
The last three are what the controller decides. Each is played with all requests, and the formulas have the same figures in closed form.
A GPU is overloaded when it is behind by more than .5 % of the run at its end. The second table has the highest rate without such a GPU,
found by halving.`,
		Example: `  evaluation inference-split
  evaluation inference-split --mix 4:2:1 --busy 0.9 --requests 10000000`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if splits.Mixes, err = parseMixes(mixes); err != nil {
				return err
			}
			if splits.Busy, err = numbers(busy, maxBusy); err != nil {
				return fmt.Errorf("flag --busy: %w", err)
			}
			if splits.Requests < leastSplitRequests || splits.Requests > mostSplitRequests {
				return fmt.Errorf("flag --requests: %d, legal is %d to %d", splits.Requests, leastSplitRequests, mostSplitRequests)
			}
			bar := command.Progress(c)
			splits.Progress = bar.Step
			result := splits.Run()
			bar.Close()
			return form.Write(c.OutOrStdout(), result)
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&mixes, "mix", []string{"10:5:3.3:1", "3:1", "2:1"}, "`rates` of unlike GPUs, separated by colons; each further flag is a mix of its own")
	flags.StringVar(&busy, "busy", "0.3,0.5,0.7", "rates of requests as `parts` of what all GPUs serve together, each above 0, at most 0.98")
	flags.IntVar(&splits.Requests, "requests", 5_000_000, "`number` of requests in each run")
	flags.Uint64Var(&splits.Seed, "seed", 1, "`seed` of arrivals and times")
	form.AddFlag(c)
	return c
}

const (
	// maxBusy bounds how busy GPUs are: beyond, the latencies of a run tell little, since they depend on each other for long.
	maxBusy = .98
	// leastSplitRequests and mostSplitRequests bound the requests of a run; each takes 8 bytes.
	leastSplitRequests = 1000
	mostSplitRequests  = 100_000_000
	// maxMix bounds the GPUs of a mix, and maxMixRate what one serves.
	maxMix     = 64
	maxMixRate = 1e6
)

// parseMixes reads mixes such as 10:5:3.3:1.
func parseMixes(texts []string) (all []inference.Mix, err error) {
	for _, text := range texts {
		m, err := numbers(strings.ReplaceAll(text, ":", ","), maxMixRate)
		if err != nil || len(m) < 2 || len(m) > maxMix {
			return nil, fmt.Errorf("flag --mix: %q has no 2 to %d numbers above 0, at most %g, separated by colons, such as 10:5", text, maxMix, maxMixRate)
		}
		all = append(all, m)
	}
	return all, nil
}
