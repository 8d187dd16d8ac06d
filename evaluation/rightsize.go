package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/mig"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

// rightsizeFlags are the flags of the command.
type rightsizeFlags struct {
	profile, latency, rates, sets string
	deployments                   []string
	part                          float64
	form                          command.Output
}

func rightsizeCommand() *cobra.Command {
	f := &rightsizeFlags{}
	c := &cobra.Command{
		Use:   "rightsize --profile PROFILE.csv --latency LATENCY.csv --rates RATES.csv",
		Short: "Finds the fewest GPUs that serve sets of models under their SLOs, by MIG instances of fitting sizes",
		Long: `Finds the fewest GPUs that serve sets of models under their SLOs, by MIG instances of fitting sizes.

PROFILE.csv has what was measured, with the columns model, gpc (compute slices of the instance), batch, procs (processes that
share it), throughput_img_s (of one of them) and latency_s (of a batch; both are 0 where it does not fit).
LATENCY.csv and RATES.csv have the SLO in milliseconds and the requests per second of each model: row n is set n, columns
are the models of the profile in the order of their names, or as a first line of names says. N/A: not in the set.
A deployment that others chose has the columns Num instance (the node), Num GPU, Model, Placement, Instance size, Batch size and
Num proc. These are the files of ParvaGPU (Lee et al., SC 2024); docs/experiments.md says where they are.

A request may have to wait for the batch before its own, so a batch may take less than half of the SLO: by default .45 of it,
as in ParvaGPU. GPUs are divided as an A100 or H100 is. The result and every deployment are then held to the profile: each
latency, each rate and each GPU. The lower bound is how many GPUs are needed at least, whatever is chosen.

The command ends with 1 when something is violated, by the result or by a deployment, and when the result needs more GPUs
than the deployment of the set; with 2 for bad input.`,
		Example: `  evaluation rightsize --profile a100_mig_mps_profile.csv --latency SLO_latency.csv --rates SLO_req_rate.csv
  evaluation rightsize --profile a100_mig_mps_profile.csv --latency SLO_latency.csv --rates SLO_req_rate.csv \
    --set 1,5 --deployment 1=SLO1_ParvaGPU_deploy.csv --deployment 5=SLO5_ParvaGPU_deploy.csv -o json`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	flags := c.Flags()
	flags.StringVar(&f.profile, "profile", "", "CSV `file` with what models reach on instances (required)")
	flags.StringVar(&f.latency, "latency", "", "CSV `file` with the SLOs of the sets (required)")
	flags.StringVar(&f.rates, "rates", "", "CSV `file` with the requests per second of the sets (required)")
	flags.StringVar(&f.sets, "set", "all", "`rows` of both files, separated by commas, or all")
	flags.StringSliceVar(&f.deployments, "deployment", nil,
		"CSV `file` to compare with, as SET=FILE; without SET= the first is of the first set, and each set has one")
	flags.Float64Var(&f.part, "latency-part", float64(mig.DefaultPermille)/1000, "`part` of the SLO that a batch may take, from 0.001 to 1")
	f.form.AddFlag(c)
	return c
}

// run reads the files, sizes the sets and prints what came of it.
func (f *rightsizeFlags) run(c *cobra.Command) error {
	r, err := f.load()
	if err != nil {
		return err
	}
	results, err := r.Run()
	if err != nil {
		return err
	}
	if err := f.form.Write(c.OutOrStdout(), results); err != nil {
		return err
	}
	violated := results.Violated()
	if len(violated) == 0 {
		return nil
	}
	if f.form == command.JSON { // the table lists them
		for _, line := range violated {
			fmt.Fprintln(c.ErrOrStderr(), "violated:", line)
		}
	}
	return fmt.Errorf("%d violations: %w", len(violated), command.ErrFailed)
}

// load reads what the flags name.
func (f *rightsizeFlags) load() (*experiment.Rightsizing, error) {
	for _, flag := range []struct{ name, value string }{{"profile", f.profile}, {"latency", f.latency}, {"rates", f.rates}} {
		if flag.value == "" {
			return nil, fmt.Errorf("flag --%s is missing: it names a CSV file", flag.name)
		}
	}
	permille := math.Round(f.part * 1000)
	if !(permille >= 1 && permille <= 1000) {
		return nil, fmt.Errorf("flag --latency-part: %v, legal is 0.001 to 1", f.part)
	}
	servings, err := loadServings(f.profile)
	if err != nil {
		return nil, err
	}
	models := make([]string, 0, len(servings))
	for i := range servings {
		models = append(models, servings[i].Model)
	}
	slices.Sort(models)
	sets, err := measurements.LoadSLOs(f.latency, f.rates, slices.Compact(models))
	if err != nil {
		return nil, fmt.Errorf("flags --latency and --rates: %w", err)
	}
	r := &experiment.Rightsizing{Profile: servings, Permille: int(permille)}
	if r.Sets, err = chosenSets(sets, f.sets); err != nil {
		return nil, fmt.Errorf("flag --set: %w", err)
	}
	if r.Published, err = loadDeployments(r.Sets, f.deployments); err != nil {
		return nil, fmt.Errorf("flag --deployment: %w", err)
	}
	return r, nil
}

// chosenSets returns the sets of a list of numbers, in its order.
func chosenSets(sets []measurements.SLOSet, list string) ([]measurements.SLOSet, error) {
	if list == "all" {
		return sets, nil
	}
	chosen := make([]measurements.SLOSet, 0, len(sets))
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > len(sets) {
			return nil, fmt.Errorf("%q is no set: legal are 1 to %d, separated by commas, and all", part, len(sets))
		}
		if slices.ContainsFunc(chosen, func(s measurements.SLOSet) bool { return s.Number == n }) {
			return nil, fmt.Errorf("set %d appears twice", n)
		}
		chosen = append(chosen, sets[n-1])
	}
	return chosen, nil
}

// loadDeployments reads the deployments of the sets.
func loadDeployments(sets []measurements.SLOSet, files []string) (map[int][]measurements.Deployed, error) {
	published := map[int][]measurements.Deployed{}
	for i, file := range files {
		text, path, named := strings.Cut(file, "=")
		number, err := strconv.Atoi(text)
		if !named || err != nil { // the name of a file may have the sign in it
			if len(files) != len(sets) {
				return nil, fmt.Errorf("%q does not say of which set it is: with %d files for %d sets each must, as in 5=FILE", file, len(files), len(sets))
			}
			number, path = sets[i].Number, file
		}
		if !slices.ContainsFunc(sets, func(s measurements.SLOSet) bool { return s.Number == number }) {
			return nil, fmt.Errorf("%q is of set %d, which is not among those to look at", file, number)
		}
		if published[number] != nil {
			return nil, fmt.Errorf("%q: set %d has two deployments", file, number)
		}
		t, err := measurements.Load(path)
		if err != nil {
			return nil, err
		}
		if len(t.Deployed) == 0 {
			return nil, fmt.Errorf("%v: it has no instances on GPUs", t)
		}
		published[number] = t.Deployed
	}
	return published, nil
}
