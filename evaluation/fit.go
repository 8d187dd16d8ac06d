package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

func fitCommand() *cobra.Command {
	c := command.Group(&cobra.Command{
		Use:   "fit",
		Short: "Fits what the scheduler predicts from on public measurements, and tells how wrong it is",
		Long: `Fits what the scheduler predicts from on public measurements, and tells how wrong it is.

The coefficients that are shipped come from these commands: with the files that docs/experiments.md names they print the
same again, and with -o go the source file that holds them. Figures are of measurements that were held out. How wrong the
shipped ones are on other measurements tells the command score.`,
	})
	c.AddCommand(fitFeaturesCommand(), fitCurvesCommand())
	return c
}

func fitFeaturesCommand() *cobra.Command {
	var networks, profiles, seeds string
	var form fitted
	var fit experiment.FeatureFit
	c := &cobra.Command{
		Use:   "features --features FEATURES.csv",
		Short: "Fits what training uses of a device from features of the network",
		Long: `Fits what training uses of a device from features of the network: parameters, activations, batch, depth.

FEATURES.csv is the table of GPUMemNet with dense networks whose training was measured. Each seed holds a random fifth of
them out; the others are fitted, and the table shows how wrong the fit is on the fifth, for the part of the time in which
kernels run (sm, 0 to 1) and the memory (MiB). Five-fold holds out each of five fifths in turn. The models are
  mean           the mean of the networks that were fitted
  least-squares  a straight line through the columns of the file as they stand there
  features       what the scheduler uses: straight lines with bends in the logarithms; memory from parameters and
                 activations times batch
PROFILES.csv is Lucid's table of jobs alone on a GPU, from which the memory bandwidth follows. Without it that stays as it
is shipped.`,
		Example: `  evaluation fit features --features mlp_train_features_util.csv
  evaluation fit features --features mlp_train_features_util.csv --hold-out-fifth 7 -o json
  evaluation fit features --features mlp_train_features_util.csv --profiles single_data.csv -o go`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if fit.Seeds, err = scenario.ParseSeeds(seeds); err != nil {
				return fmt.Errorf("flag --hold-out-fifth: %w", err)
			}
			t, err := measured("--features", networks, func(t *measurements.File) int { return len(t.Networks) }, "networks")
			if err != nil {
				return err
			}
			fit.Networks = t.Networks
			if profiles != "" {
				t, err := measured("--profiles", profiles, func(t *measurements.File) int { return len(t.Solos) }, "solo profiles")
				if err != nil {
					return err
				}
				fit.Profiles = t.Solos
			}
			result, err := fit.Run()
			if err != nil {
				return err
			}
			return form.write(c.OutOrStdout(), result)
		},
	}
	flags := c.Flags()
	flags.StringVar(&networks, "features", "", "CSV `file` with features of networks and what their training used (required)")
	flags.StringVar(&profiles, "profiles", "", "CSV `file` with jobs alone on a GPU, for the bandwidth")
	flags.StringVar(&seeds, "hold-out-fifth", "1-10",
		"`seeds` of the fifths that are held out: single ones and ranges, separated by commas")
	form.addFlags(c)
	return c
}

// measured loads a file of measurements that must have some of one kind.
func measured(flag, path string, count func(*measurements.File) int, what string) (*measurements.File, error) {
	if path == "" {
		return nil, fmt.Errorf("flag %s is missing: it names a CSV file", flag)
	}
	t, err := measurements.Load(path)
	if err != nil {
		return nil, fmt.Errorf("flag %s: %w", flag, err)
	}
	if count(t) == 0 {
		return nil, fmt.Errorf("flag %s: %v: it has no %s", flag, t, what)
	}
	return t, nil
}

// fitted is the form of a fit: an output, or the shipped source file, with a date.
type fitted struct {
	form, date string
}

const outputGo = "go"

func (f *fitted) addFlags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVarP(&f.form, "output", "o", string(command.Table),
		"what to print (`table|json|go`): a table for people, JSON for programs, or the source file that is shipped")
	flags.StringVar(&f.date, "date", "", "`date` of the fit that the source file tells, such as 2026-01-31")
	c.PreRunE = func(*cobra.Command, []string) error { return f.validate() }
}

var calendar = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)

func (f *fitted) validate() error {
	if known := append(slices.Clone(command.Outputs()), outputGo); !slices.Contains(known, f.form) {
		return fmt.Errorf("flag --output: unknown form %q, known are %s", f.form, strings.Join(known, ", "))
	}
	if f.date != "" && !calendar.MatchString(f.date) {
		return fmt.Errorf("flag --date: %q is no date such as 2026-01-31", f.date)
	}
	return nil
}

// source is a fit that can write the shipped file.
type source interface {
	Table(io.Writer) error
	Go(w io.Writer, date string) error
}

func (f *fitted) write(w io.Writer, results source) error {
	switch f.form {
	case outputGo:
		return results.Go(w, f.date)
	case string(command.JSON):
		return report.JSON(w, results)
	}
	return results.Table(w)
}
