package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/shapes"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/placement"
)

func shapesCommand() *cobra.Command {
	var numbers, policies, seeds, sort string
	var form command.Output
	var x experiment.Shapes
	c := &cobra.Command{
		Use:   "shapes",
		Short: "Compares policies on made-up clusters that none of them was tuned for",
		Long: fmt.Sprintf(`Compares policies on made-up clusters that none of them was tuned for.

A shape is one cluster with the kinds of pods that arrive there. Each of the %d families makes one thing hard: memory that
runs out first, rare large pods, a mix that changes. Even numbers are fills: pods arrive until they ask for 130 %% of the
GPUs, stay, and are dropped where they do not fit. Odd numbers are flows: jobs come, wait, run and end. The policies learn
the usual requests from the pods that arrive. Numbers from 0 to %d are the shapes of docs/experiments/shapes.md; each
further number, up to %d, is another one.

Regret is how much worse a policy is than the best of the policies on the same shape, in the mean over the seeds:
percentage points of allocated GPUs for fills, percent of the mean job completion time for flows. The table has its mean
over the shapes, the worst, and the part of the shapes on which it is within .1 point or 1 %%.`, shapes.Families(), shapes.Count-1, shapes.MaxNumber),
		Example: `  evaluation shapes
  evaluation shapes --sort fills --seeds 1-10 --policy tandem,fgd,bestfit
  evaluation shapes --shapes 200-399 -o json`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if x.Policies, err = experiment.ParsePolicies(policies); err != nil {
				return fmt.Errorf("flag --policy: %w", err)
			}
			if x.Seeds, err = scenario.ParseSeeds(seeds); err != nil {
				return fmt.Errorf("flag --seeds: %w", err)
			}
			if x.Numbers, err = shapeNumbers(numbers, sort); err != nil {
				return err
			}
			bar := command.Progress(c)
			x.Progress = bar.Step
			out, err := x.Run()
			bar.Close()
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), out)
		},
	}
	flags := c.Flags()
	flags.StringVar(&numbers, "shapes", fmt.Sprintf("0-%d", shapes.Count-1), "`numbers` of shapes: single ones and ranges, separated by commas")
	flags.StringVar(&sort, "sort", "all", "`sort` of shapes: all, fills or flows")
	flags.StringVar(&policies, "policy", experiment.All, "`names` of policies separated by commas, or all: "+strings.Join(placement.Policies(), ", "))
	flags.StringVar(&seeds, "seeds", "0-4", "`seeds` that the pods are drawn with, a run each: single ones and ranges, separated by commas")
	form.AddFlag(c)
	return c
}

// shapeNumbers reads the flags that choose shapes.
func shapeNumbers(text, sort string) (numbers []int, err error) {
	if sort != "all" && sort != "fills" && sort != "flows" {
		return nil, fmt.Errorf("flag --sort: unknown sort %q, known are all, fills, flows", sort)
	}
	all, err := scenario.ParseSeeds(text)
	if err != nil {
		return nil, fmt.Errorf("flag --shapes: %q, legal are numbers from 0 to %d and ranges such as 200-399, separated by commas, 10000 in all", text, shapes.MaxNumber)
	}
	for _, n := range all {
		if n < 0 || n > shapes.MaxNumber {
			return nil, fmt.Errorf("flag --shapes: number %d, legal is 0 to %d", n, shapes.MaxNumber)
		}
		if fills := shapes.Of(int(n)).Fills; sort == "all" || fills == (sort == "fills") {
			numbers = append(numbers, int(n))
		}
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("flag --shapes: %s has no %s", text, sort)
	}
	return numbers, nil
}
