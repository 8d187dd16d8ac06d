package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/api/config"
)

func ratesCommand() *cobra.Command {
	var throughputs, set, cluster, policies, seeds string
	var prices []string
	var form command.Output
	var rating experiment.Rating
	c := &cobra.Command{
		Use:   "rates --throughputs THROUGHPUTS.csv",
		Short: "Compares what jobs that want a rate cost on unlike GPUs, by how their GPU is chosen",
		Long: `Compares what jobs that want a rate cost on unlike GPUs, by how their GPU is chosen.

Jobs come one after the other and never leave. Each is one of the measured kinds and wants the rate that it reaches on 1 to
10 tenths of a device of one of the models. A share of a device is taken to reach its part of the device's rate.

THROUGHPUTS.csv is one of the tables made from Gavel (Narayanan et al., OSDI 2020): with the columns gpu, job_a, job_b,
iso_a, iso_b and maybe file, or with gpu, job, scale_factor, tput_consolidated_steps_s. docs/experiments.md says where its
data are. Only jobs that were measured on every model of the cluster are drawn.

The choices are
  cheapest-share  the share that reaches the rate at the least cost: what the scheduler does for a pod with a rate
  cheapest-model  the share that reaches the rate on the model whose devices cost the least, of those that reach it
  any-model       the share that reaches the rate on whichever model the policy prefers
  same-slots      as many slots on any model as reach the rate on every model, or all slots of a device
  measured-slots  the slots on which the job was measured, on any model
The last two know no models: they may miss the rate. Costs are per hour, in the unit of the prices: of the shares that were
given away, and of the devices that were touched. Jobs are met, missed (the share does not reach the rate) or unplaced.`,
		Example: `  evaluation rates --throughputs pairs.csv
  evaluation rates --throughputs pairs.csv --prices k80=0.9,v100=3.06 --jobs 40 -o json`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if rating.Policies, err = experiment.ParsePolicies(policies); err != nil {
				return fmt.Errorf("flag --policy: %w", err)
			}
			if rating.Seeds, err = scenario.ParseSeeds(seeds); err != nil {
				return fmt.Errorf("flag --seeds: %w", err)
			}
			if rating.Jobs < 1 || rating.Jobs > experiment.MaxRatedJobs {
				return fmt.Errorf("flag --jobs: %d, legal is 1 to %d", rating.Jobs, experiment.MaxRatedJobs)
			}
			if rating.Devices, err = parseDevices(cluster); err != nil {
				return fmt.Errorf("flag --cluster: %w", err)
			}
			for _, list := range prices {
				one, err := parsePrices(list, rating.Devices)
				if err != nil {
					return fmt.Errorf("flag --prices: %w", err)
				}
				rating.Prices = append(rating.Prices, one)
			}
			if rating.Rates, err = loadRates(throughputs, set); err != nil {
				return err
			}
			return rate(c, &rating, &form)
		},
	}
	flags := c.Flags()
	flags.StringVar(&throughputs, "throughputs", "", "CSV `file` with the rates of jobs by GPU model (required)")
	flags.StringVar(&set, "set", "oracle", "which `measurement` to take where the column file names several")
	flags.StringVar(&cluster, "cluster", "k80=36,v100=36", "number of `devices` by model")
	flags.StringArrayVar(&prices, "prices", []string{"k80=0.45,v100=2.48", "k80=0.9,v100=3.06"},
		"what a device and hour costs by `model`; each further flag is a list of its own")
	flags.IntVar(&rating.Jobs, "jobs", 100, "`number` of jobs; results are shown after each fifth of them")
	flags.StringVar(&policies, "policy", "packed", "`names` of policies separated by commas, or all")
	flags.StringVar(&seeds, "seeds", "42-51", "`seeds` that the jobs are drawn with, a run each: single ones and ranges, separated by commas")
	form.AddFlag(c)
	return c
}

// rate plays the runs and prints what came of them.
func rate(c *cobra.Command, rating *experiment.Rating, form *command.Output) error {
	bar := command.Progress(c)
	rating.Progress = bar.Step
	rates, err := rating.Run()
	bar.Close()
	if err != nil {
		return err
	}
	return form.Write(c.OutOrStdout(), rates)
}

// loadRates reads the throughputs of one set of measurements; a file that has no sets is all one.
func loadRates(path, set string) ([]measurements.Rate, error) {
	if path == "" {
		return nil, fmt.Errorf("flag --throughputs is missing: it names a CSV file")
	}
	t, err := measurements.Load(path)
	if err != nil {
		return nil, fmt.Errorf("flag --throughputs: %w", err)
	}
	if len(t.Rates) == 0 {
		return nil, fmt.Errorf("flag --throughputs: %v: it has no rates of jobs", t)
	}
	var rates []measurements.Rate
	for _, r := range t.Rates {
		if r.Set == "" || r.Set == set {
			rates = append(rates, r)
		}
	}
	if len(rates) == 0 {
		return nil, fmt.Errorf("flag --set: %s has no measurement %q, its first is %q", path, set, t.Rates[0].Set)
	}
	return rates, nil
}

// maxRatedDevices bounds the devices of one model.
const maxRatedDevices = 10_000

func parseDevices(list string) (map[string]int, error) {
	devices := map[string]int{}
	for part := range strings.SplitSeq(list, ",") {
		model, text, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(text)
		_, twice := devices[model]
		switch {
		case model == "" || err != nil || n < 1 || n > maxRatedDevices:
			return nil, fmt.Errorf("%q is no model with a number of devices from 1 to %d, such as v100=36", part, maxRatedDevices)
		case twice:
			return nil, fmt.Errorf("model %s appears twice", model)
		}
		devices[model] = n
	}
	return devices, nil
}

// parsePrices reads what a device costs of each model of the cluster, in millionths.
func parsePrices(list string, devices map[string]int) (map[string]int64, error) {
	prices := map[string]int64{}
	for part := range strings.SplitSeq(list, ",") {
		model, text, _ := strings.Cut(part, "=")
		q, err := resource.ParseQuantity(text)
		price, ok := config.Millionths(q, config.MaxCost)
		_, twice := prices[model]
		switch {
		case model == "" || err != nil || !ok:
			return nil, fmt.Errorf("%q is no model with a price above 0, at most %d, with up to six decimals, such as v100=2.48", part, config.MaxCost)
		case twice:
			return nil, fmt.Errorf("model %s appears twice", model)
		case devices[model] == 0:
			return nil, fmt.Errorf("model %s is not in the cluster", model)
		}
		prices[model] = price
	}
	for model := range devices {
		if prices[model] == 0 {
			return nil, fmt.Errorf("%q has no price for every model of the cluster", list)
		}
	}
	return prices, nil
}
