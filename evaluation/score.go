package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

func scoreCommand() *cobra.Command {
	c := command.Group(&cobra.Command{
		Use:   "score",
		Short: "Tells how wrong the shipped curves and guesses are on measurements of your own",
		Long: `Tells how wrong the shipped curves and guesses are on measurements of your own.

Nothing is fitted: the figures are those of the scheduler that this laboratory belongs to. For the models of interference the
command is interference without --hold-out, or with --coefficients shipped.`,
	})
	c.AddCommand(scoreCurvesCommand(), scoreFeaturesCommand())
	return c
}

func scoreCurvesCommand() *cobra.Command {
	var paths []string
	var form command.Output
	c := &cobra.Command{
		Use:   "curves --curves FILE.csv…",
		Short: "Tells how wrong the shipped curves of speed by part of the SMs are",
		Long: `Tells how wrong the shipped curves of speed by part of the SMs are, by class of work.

A file has the layout of iGniter, MuxServe, MISO or ParvaGPU; one is enough. Work is light by the same rule as when the curves
were fitted (see fit curves). The columns are
  fixed         the part of the time on the whole device that does not depend on the SMs, as it is shipped
  MAE, RMSE     mean absolute error of the speed as a part of that on the whole device, and root of the mean square
  expected      the RMSE that the scheduler expects of the curve
  proportional  MAE of a speed that follows the SMs
  unaffected    MAE of a speed that does not
  below proportional  part of the points that are over 5 % slower than in proportion to the SMs`,
		Example: `  evaluation score curves --curves v100_mps_latency_throughput.csv
  evaluation score curves --curves mine.csv -o json`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			files, err := curveFiles(paths)
			if err != nil {
				return err
			}
			result, err := experiment.ScoreCurves(files)
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), result)
		},
	}
	addCurves(c, &paths)
	form.AddFlag(c)
	return c
}

// addCurves adds the flag that names files with curves.
func addCurves(c *cobra.Command, paths *[]string) {
	c.Flags().StringArrayVar(paths, "curves", nil,
		"CSV `file` with workloads alone on parts of a device; give it once for each file (required)")
}

// curveFiles loads files with workloads alone on parts of a device.
func curveFiles(paths []string) ([]*measurements.File, error) {
	if len(paths) == 0 {
		return nil, errors.New("flag --curves is missing: it names a CSV file, and may be given several times")
	}
	files := make([]*measurements.File, 0, len(paths))
	for _, path := range paths {
		t, err := measured("--curves", path, func(t *measurements.File) int { return len(t.Solos) }, "solo profiles")
		if err != nil {
			return nil, err
		}
		files = append(files, t)
	}
	return files, nil
}

func scoreFeaturesCommand() *cobra.Command {
	var networks string
	var form command.Output
	c := &cobra.Command{
		Use:   "features --features FEATURES.csv",
		Short: "Tells how wrong the shipped guess is of what training uses",
		Long: `Tells how wrong the shipped guess is of what training uses, from features of the network.

FEATURES.csv has the layout of GPUMemNet: networks whose training was measured. The targets are the part of the time in which
kernels run (sm, 0 to 1) and the memory (MiB). Networks outside the range that was fitted have rows of their own: the scheduler
takes their profiles for guesses. The column mean has the mean absolute error of predicting the mean of the file.`,
		Example: `  evaluation score features --features mlp_train_features_util.csv
  evaluation score features --features mine.csv -o json`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := measured("--features", networks, func(t *measurements.File) int { return len(t.Networks) }, "networks")
			if err != nil {
				return err
			}
			var result *results.FeatureScores
			if result, err = experiment.ScoreFeatures(t.Networks); err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), result)
		},
	}
	c.Flags().StringVar(&networks, "features", "", "CSV `file` with features of networks and what their training used (required)")
	form.AddFlag(c)
	return c
}
