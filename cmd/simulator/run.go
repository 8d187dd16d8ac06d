package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/summary"
)

func runCommand() *cobra.Command {
	var form command.Output
	var plot string
	var shown page
	c := &cobra.Command{
		Use:   "run SCENARIO.yaml",
		Short: "Plays a scenario with every policy that it names and checks what it expects",
		Long: `Plays a scenario with every policy that it names, and checks what it expects.

The table has a row for each policy and seed:
  finished, running, waiting, dropped   how many jobs ended · run for ever · never found room · were sent away
  allocated %, peak %                   of all GPUs, given away: on average over time · at most
  fragmented %                          of all GPUs, idle and of no use to the usual jobs: on average over time
  mean wait                             from the arrival of a job to its start
  mean JCT, p99 JCT                     job completion time, from arrival to end: the mean, and what 99 of 100 jobs keep below
  makespan                              from the first arrival to the last end

Where the workload has gangs a second table follows, of gangs in place of jobs:
  drained                               how many had room kept for them while its owners ended
  attempts                              how often a place was looked for, on average
  mean racks, mean hostnames, …         on how many domains of each label of the nodes a gang is, on average

Where gangs are elastic another table has a row for each of them, for the first ten of each run:
  min, mean, max                        how many workers it had while it ran: the fewest, over the time, the most
  moves                                 how often another number was decided while it ran
  paused                                how long it did no work after changes
  workers over time                     the numbers of its workers, each after the time of the change; 0 while it waits

Where pods may be evicted a last one follows, with a row for each priority:
  preemptions, victims                  how often others were evicted to make room · how many pods
  GPU-h lost                            GPU time of the work that was undone by that
  violations                            victims beyond what budgets allow
  placed, mean wait, p99 wait, max wait of the jobs of the priority

Where there are fleets or notebooks, or the policy native, a table of work has a row for each policy and seed:
  useful GPU-h, training, inference, notebooks   the time that the work which was done takes alone on a GPU
  GPUs in use                           what pods held, on average
  training JCT                          mean completion time of trainings, a gang for one
  windows, broken                       minutes of fleets with enough requests · those in which the promise was broken
  notebook wait                         from the arrival of a notebook to its start
  burst slowdown                        the time that bursts of notebooks took ÷ the time that they take alone
Parts of the workload that come after others have a row each, with the times when they arrive, start and end.

Below stands which assertions hold. The command ends with 1 when one does not, with 2 when the scenario has an error.

With --serve a browser then shows one run as a map of the GPUs with a time slider.`,
		Example: `  simulator run examples/mixed.yaml
  simulator run examples/mixed.yaml -o json
  simulator run examples/mixed.yaml --policy packed
  simulator run examples/mixed.yaml --policy packed --serve 127.0.0.1:8080`,
		Args: command.ScenarioFile,
		RunE: func(c *cobra.Command, args []string) error {
			if plot != "" {
				return fmt.Errorf("flag --plot: the simulator does not draw; go run ./evaluation draw %s --plot %s does", args[0], plot)
			}
			s, err := scenario.Read(args[0])
			if err == nil {
				s, err = s.Only(shown.policy, shown.seed)
			}
			if err != nil {
				return err
			}
			return play(c, s, &form, &shown)
		},
	}
	form.AddFlag(c)
	shown.addFlags(c)
	c.Flags().StringVar(&plot, "plot", "", "")
	c.Flags().Lookup("plot").Hidden = true // it is there for its error only
	return c
}

// play runs a scenario, prints what came of it, and shows a run where that is asked for.
func play(c *cobra.Command, s *scenario.Scenario, form *command.Output, shown *page) error {
	l, err := shown.listen(c.Context())
	if err != nil {
		return err
	}
	if l != nil {
		defer l.Close()
	}
	bar := command.Progress(c)
	bar.Parts = scenario.Hundredths
	result, err := s.Play(bar.Step)
	bar.Close()
	if err != nil {
		return err
	}
	run, err := choose(result, shown.policy, shown.seed)
	if err != nil {
		return err
	}
	results := summary.Of(result)
	if err := form.Write(c.OutOrStdout(), results); err != nil {
		return err
	}
	if l != nil {
		if err := shown.show(c, l, result.Name, run); err != nil {
			return err
		}
	}
	failed := results.Failed()
	if len(failed) == 0 {
		return nil
	}
	if *form == command.JSON { // the table lists them
		for _, line := range failed {
			fmt.Fprintln(c.ErrOrStderr(), "failed:", line)
		}
	}
	return fmt.Errorf("%d of %d %w", len(failed), len(results.Checks), command.ErrFailed)
}
