package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/notebooks"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

func notebooksCommand() *cobra.Command {
	var n notebooks.Notebooks
	var duties, seeds string
	var form command.Output
	c := &cobra.Command{
		Use:   "notebooks",
		Short: "Compares how long notebooks take on whole GPUs and on shares of GPUs",
		Long: `Compares how long notebooks take on whole GPUs and on shares of GPUs.

A notebook is idle and computes by turns, for exponential times. Its duty is the part of its time in which it computes when it is alone. On whole
GPUs, as in Kubernetes without sharing, a notebook holds a GPU until it is done, and others wait. On shares, as many as --slots hold a GPU
together: each requests its part and may use the whole GPU while the others are idle.

The table has the time until all are done on whole GPUs ÷ that on shares, for each duty. The columns are
  ideal        bursts at the same time divide a GPU without loss
  unknown      they divide its SMs and lose what their neighbours take of the memory's bandwidth, by the default model of interference; a burst is
               as fast as its part of the SMs
  training     the same, and the speed on a part of the SMs is that of training
  hard limits  unknown, and no burst may use more than what it requests`,
		Example: `  evaluation notebooks
  evaluation notebooks --notebooks 48 --gpus 6 --slots 8 --duty 0.05,0.1,0.2`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if n.Duties, err = numbers(duties, 1); err != nil || len(n.Duties) == 0 || !slices.IsSorted(n.Duties) {
				return fmt.Errorf("flag --duty: %q, legal are numbers above 0 and at most 1, ascending, with commas between them", duties)
			}
			if n.Seeds, err = scenario.ParseSeeds(seeds); err != nil {
				return fmt.Errorf("flag --seeds: %w", err)
			}
			if err := checkNotebooks(&n); err != nil {
				return err
			}
			bar := command.Progress(c)
			n.Progress = bar.Step
			result, err := n.Run()
			bar.Close()
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), result)
		},
	}
	flags := c.Flags()
	flags.IntVar(&n.Count, "notebooks", 24, "`number` of notebooks, 1 to 10000")
	flags.IntVar(&n.GPUs, "gpus", 6, "`number` of GPUs, 1 to 1000")
	flags.IntVar(&n.Slots, "slots", 4, "`number` of notebooks that share a GPU, 1 to 100")
	flags.IntVar(&n.Bursts, "bursts", 200, "`number` of bursts of each notebook, 1 to 100000")
	flags.Float64Var(&n.Seconds, "burst", 60, "mean `seconds` of a burst alone, above 0, at most 86400")
	flags.StringVar(&duties, "duty", "0.1,0.2,0.3,0.4,0.5,0.6", "`duties`, ascending, each above 0, at most 1")
	flags.Float64Var(&n.Profile.SM, "sm", 1, "`part` of its time in which a burst has a kernel on the GPU, 0 to 1")
	flags.Float64Var(&n.Profile.Bandwidth, "bandwidth", .5, "`part` of its time in which a burst reads or writes memory, 0 to 1")
	flags.StringVar(&seeds, "seeds", "1-5", "`seeds` for what is drawn, a run each: single ones and ranges, separated by commas")
	form.AddFlag(c)
	return c
}

func checkNotebooks(n *notebooks.Notebooks) error {
	for _, x := range []struct {
		flag     string
		is, most int
	}{{"notebooks", n.Count, notebooks.MaxNotebooks}, {"gpus", n.GPUs, notebooks.MaxGPUs}, {"slots", n.Slots, 100}, {"bursts", n.Bursts, notebooks.MaxBursts}} {
		if x.is < 1 || x.is > x.most {
			return fmt.Errorf("flag --%s: %d, legal is 1 to %d", x.flag, x.is, x.most)
		}
	}
	if !(n.Seconds > 0 && n.Seconds <= 86400) {
		return fmt.Errorf("flag --burst: %v, legal is above 0 and at most 86400", n.Seconds)
	}
	if err := n.Profile.Validate(); err != nil {
		return fmt.Errorf("flags --sm and --bandwidth: %w", err)
	}
	return nil
}
