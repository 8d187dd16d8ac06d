package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/interference"
)

// predictedFlags are what interference takes as text.
type predictedFlags struct {
	pairs, profiles                                                        []string
	set, holdOut, observe, observed, models, seeds, slowdown, coefficients string
}

func interferenceCommand() *cobra.Command {
	var given predictedFlags
	var form command.Output
	c := &cobra.Command{
		Use:   "interference --pairs PAIRS.csv [MORE.csv ...]",
		Short: "Compares how well models predict the speed of two workloads that share a GPU",
		Long: `Compares how well models predict the speed of two workloads that share a GPU.

PAIRS.csv has workloads that were measured alone and side by side, in the layout of Lucid (Hu et al., ASPLOS 2023), Gavel
(Narayanan et al., OSDI 2020), iGniter (Xu et al., TPDS 2023) or the GPU suite of this project, which its columns tell;
PROFILES.csv has what each of them uses of a GPU that it has alone, in the layout of the profiles of Lucid, iGniter or the
suite. docs/experiments.md says where the data are. Several files are taken together, and sorted by layout and GPU model,
those of the suite also by how the GPU was shared. Without profiles a model knows no more of a workload than the scheduler
does of one that nobody has described.

For both workloads of each pair the speed is predicted: the throughput together ÷ alone. The table has the mean absolute
error, by how much of the variance is explained (R²), and how far a promise is kept when a pair is admitted if both
slowdowns are predicted to be at most --max-slowdown: which part of the admitted pairs keeps it (precision), and which part
of those that keep it is admitted (recall).

Without --hold-out the models are those that the scheduler has, with the coefficients that they are shipped with. With it
each named family of workloads is held out in turn: coefficients are fitted to the pairs without the family, and those with
it are predicted. A family is a model in all sizes (ResNet), in Gavel a job in all batch sizes (ResNet-18). With --observe
the models first see so many co-runs of each workload of the predicted pairs, drawn by each seed from these pairs; what
they saw is not scored. A co-run that one workload draws is one of its partner too, so on average they see more (shown).
With --coefficients shipped nothing is fitted: what is held out says only which pairs are scored, and whose co-runs are seen.
With --observed held-out they see co-runs only of the workloads that are held out; with history all pairs without the
family too, as a cluster does that meets a new one.

Left out, and counted, are pairs that do not fit in the memory of the GPU, and of Lucid's those with VGG, whose speed alone
is that of another configuration.`,
		Example: `  evaluation interference --pairs colocate_info.csv --profiles single_data.csv --hold-out all --observe 0,2,4
  evaluation interference --pairs pairs.csv --model constant,default --observe 4 -o json`,
		RunE: func(c *cobra.Command, more []string) error {
			given.pairs = append(given.pairs, more...)
			p, err := given.parse()
			if err != nil {
				return err
			}
			return predict(c, p, &form)
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&given.pairs, "pairs", nil, "CSV `file` with pairs of workloads; may be given several times (required)")
	flags.StringArrayVar(&given.profiles, "profiles", nil, "CSV `file` with profiles of the workloads alone; may be given several times")
	flags.StringVar(&given.set, "set", "oracle", "which `measurement` to take where a file of Gavel has several")
	flags.StringVar(&given.holdOut, "hold-out", "", "`families` to hold out in turn, separated by commas, or all")
	flags.StringVar(&given.observe, "observe", "0", "`numbers` of co-runs of each workload that the models see first, separated by commas")
	flags.StringVar(&given.observed, "observed", string(experiment.ObservedAll), "`whose` co-runs are seen: all, held-out or history")
	flags.StringVar(&given.coefficients, "coefficients", "", "`which` coefficients: shipped, or fitted to the pairs without the family that is held out (default fitted with --hold-out, else shipped)")
	flags.StringVar(&given.models, "model", experiment.All, "`names` of models separated by commas, or all: "+strings.Join(interference.Models(), ", "))
	flags.StringVar(&given.seeds, "seeds", "1-10", "`seeds` that the co-runs are drawn with: single ones and ranges, separated by commas")
	flags.StringVar(&given.slowdown, "max-slowdown", "1.25", "`promise` by which pairs are admitted: time together ÷ alone, from 1 to 100")
	form.AddFlag(c)
	return c
}

// predict plays the runs and prints what came of them.
func predict(c *cobra.Command, p *experiment.Predicting, form *command.Output) error {
	bar := command.Progress(c)
	p.Progress = bar.Step
	results, err := p.Run()
	bar.Close()
	if err != nil {
		return err
	}
	return form.Write(c.OutOrStdout(), results)
}

func (f *predictedFlags) parse() (p *experiment.Predicting, err error) {
	p = &experiment.Predicting{}
	if p.Observe, err = parseObserve(f.observe); err != nil {
		return nil, fmt.Errorf("flag --observe: %w", err)
	}
	if p.Observed, err = parseObserved(f.observed, f.holdOut != ""); err != nil {
		return nil, fmt.Errorf("flag --observed: %w", err)
	}
	if p.Shipped, err = parseCoefficients(f.coefficients, f.holdOut != ""); err != nil {
		return nil, fmt.Errorf("flag --coefficients: %w", err)
	}
	if p.Models, err = experiment.ParsePredictingModels(f.models); err != nil {
		return nil, fmt.Errorf("flag --model: %w", err)
	}
	if p.Seeds, err = scenario.ParseSeeds(f.seeds); err != nil {
		return nil, fmt.Errorf("flag --seeds: %w", err)
	}
	if p.MaxSlowdown, err = parseSlowdown(f.slowdown); err != nil {
		return nil, fmt.Errorf("flag --max-slowdown: %w", err)
	}
	if p.Sets, err = f.load(); err != nil {
		return nil, err
	}
	if f.holdOut != "" {
		if p.HoldOut, err = experiment.ParseFamilies(f.holdOut, p.Sets); err != nil {
			return nil, fmt.Errorf("flag --hold-out: %w", err)
		}
	}
	return p, nil
}

// load reads the files.
func (f *predictedFlags) load() ([]experiment.PairSet, error) {
	if len(f.pairs) == 0 {
		return nil, errors.New("flag --pairs is missing: it names a CSV file")
	}
	pairs, err := loadAll(f.pairs)
	if err != nil {
		return nil, fmt.Errorf("flag --pairs: %w", err)
	}
	profiles, err := loadAll(f.profiles)
	if err != nil {
		return nil, fmt.Errorf("flag --profiles: %w", err)
	}
	return experiment.PairSets(pairs, profiles, f.set)
}

// loadAll reads files, each once.
func loadAll(paths []string) ([]*measurements.File, error) {
	all := make([]*measurements.File, 0, len(paths))
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			return nil, fmt.Errorf("%s is given twice", path)
		}
		t, err := measurements.Load(path)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// maxObserve bounds the co-runs that a model sees of each workload.
const maxObserve = 1000

func parseObserve(list string) ([]int, error) {
	parts := strings.Split(list, ",")
	all := make([]int, 0, len(parts))
	for _, part := range parts {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		switch {
		case err != nil || n < 0 || n > maxObserve:
			return nil, fmt.Errorf("%q is no whole number from 0 to %d", part, maxObserve)
		case slices.Contains(all, n):
			return nil, fmt.Errorf("%d appears twice", n)
		}
		all = append(all, n)
	}
	return all, nil
}

func parseObserved(name string, heldOut bool) (experiment.Observed, error) {
	whose := experiment.Observed(name)
	switch {
	case !slices.Contains(experiment.ObservedKinds(), whose):
		return "", fmt.Errorf("%q, legal are all, held-out and history", name)
	case whose != experiment.ObservedAll && !heldOut:
		return "", fmt.Errorf("%s is about families that are held out: it needs --hold-out", name)
	}
	return whose, nil
}

// maxPromise bounds --max-slowdown.
const maxPromise = 100

func parseSlowdown(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < 1 || v > maxPromise {
		return 0, fmt.Errorf("%q is no number from 1 (no slowdown at all) to %d", text, maxPromise)
	}
	return v, nil
}

// parseCoefficients reads whether models keep their shipped coefficients.
func parseCoefficients(s string, heldOut bool) (shipped bool, err error) {
	switch {
	case s == "":
		return !heldOut, nil
	case s == "shipped":
		return true, nil
	case s == "fitted" && heldOut:
		return false, nil
	case s == "fitted":
		return false, errors.New("nothing is fitted without --hold-out: the coefficients are shipped")
	}
	return false, fmt.Errorf("unknown coefficients %q, known are shipped and fitted", s)
}
