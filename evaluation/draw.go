package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/plots"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

func drawCommand() *cobra.Command {
	var plot string
	c := &cobra.Command{
		Use:   "draw SCENARIO.yaml --plot FOLDER",
		Short: "Plays a scenario with every policy that it names and draws what became of it",
		Long: `Plays a scenario with every policy that it names, and draws what became of it.

The figures are utilisation, fragmentation, wait_cdf and jct_cdf, where there are some also gang_wait_cdf and lost, day where
there are fleets or notebooks, and allocation where no job ends; each as .svg and .png. A line is a policy: the mean of its seeds, or all of their jobs together.
What the scenario expects is not checked here: the table and the assertions are those of "simulator run".`,
		Example: `  evaluation draw examples/mixed.yaml --plot out`,
		Args:    command.ScenarioFile,
		RunE: func(c *cobra.Command, args []string) error {
			if plot == "" {
				return errors.New("flag --plot is missing: it names a folder to draw into")
			}
			s, err := scenario.Read(args[0])
			if err != nil {
				return err
			}
			if err := folder(plot); err != nil {
				return err
			}
			bar := command.Progress(c)
			bar.Parts = scenario.Hundredths
			result, err := s.Play(bar.Step)
			bar.Close()
			if err != nil {
				return err
			}
			return draw(c, plot, experiment.Figures(result))
		},
	}
	c.Flags().StringVar(&plot, "plot", "", "`folder` to draw into (required)")
	return c
}

// folder makes the directory of the figures, if there is one: before the runs, which may take minutes.
func folder(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("flag --plot: %w", err)
	}
	return nil
}

// draw writes figures into a directory, if there is one, and prints their paths.
func draw(c *cobra.Command, dir string, figures []plots.Figure) error {
	if dir == "" {
		return nil
	}
	paths, err := plots.Write(dir, figures...)
	for _, p := range paths {
		fmt.Fprintln(c.ErrOrStderr(), "wrote", p)
	}
	return err
}
