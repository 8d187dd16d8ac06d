package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// inferenceFlags are the flags of the command.
type inferenceFlags struct {
	profile, workload, shares                     string
	loads                                         []string
	promises, misses, utilisations, rates, static string
	from, minutes, warmUp                         int
	scale                                         float64
	loadTime                                      time.Duration
	loadTimes                                     string
	variation                                     float64
	seed                                          uint64
	form                                          command.Output
}

func inferenceCommand() *cobra.Command {
	f := &inferenceFlags{}
	c := &cobra.Command{
		Use:   "inference --profile PROFILE.csv --workload NAME --load LOAD.csv",
		Short: "Compares how many GPUs policies need that size a fleet of inference replicas for a promised latency",
		Long: `Compares how many GPUs policies need that size a fleet of inference replicas for a promised latency.

A load is played request by request, at random times within each minute. A replica serves one request at a time on its share of a GPU, at the
measured latency. A window is a minute, or several until there are 100 requests; it is broken where the p99 of its requests is above the
promise. GPUs are the mean of the shares of all replicas, those that load included.

PROFILE.csv has the latency of a model by share: iGniter's table (model, batch, mps_pct, latency_ms, throughput_img_s). --workload is one of
its configurations, such as "vgg19 batch 1".
LOAD.csv is a load: tweets by minute (minute, tweets), requests as Azure publishes them (TIMESTAMP, ContextTokens, GeneratedTokens), or rates
of requests as Alibaba does (timestamp_anon, value, request_type), of which the generative ones count.

The policies are
  tandem              what the controller does, with replicas on all shares; a run for each part of the minutes that a forecast may miss
  tandem, one share   the same, with one share
  HPA on utilisation  Kubernetes' autoscaler on the part of the time in which replicas work, a run for each target and share
  HPA on rate         the same on requests a second for each replica, as parts of what a replica completes when it is always busy
  static              as many replicas all the time as the mean of the load needs, times a factor
The last table has the best setting of each, found by trying all of them on the load itself: nobody knows it beforehand.`,
		Example: `  evaluation inference --profile v100_mps_latency_throughput.csv --workload "vgg19 batch 1" --load twitter_per_minute.csv --minutes 2880`,
		Args:    command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			serving, err := f.parse()
			if err != nil {
				return err
			}
			bar := command.Progress(c)
			serving.Progress = bar.Step
			results, err := serving.Run()
			bar.Close()
			if err != nil {
				return err
			}
			return f.form.Write(c.OutOrStdout(), results)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.profile, "profile", "", "CSV `file` with latencies by share (required)")
	flags.StringVar(&f.workload, "workload", "", "`name` of a configuration of the profile (required)")
	flags.StringVar(&f.shares, "shares", "20,40,60,100", "`percents` of a GPU to choose from, separated by commas")
	flags.StringArrayVar(&f.loads, "load", nil, "CSV `file` with a load; each further flag is a load of its own (required)")
	flags.IntVar(&f.from, "from", 0, "first `minute` of each load that is played")
	flags.IntVar(&f.minutes, "minutes", 1<<30, "`number` of minutes that are played")
	flags.IntVar(&f.warmUp, "warm-up", 1440, "first `minutes` of those in which policies learn and nothing counts")
	flags.Float64Var(&f.scale, "scale", 4, "`factor` on all loads, above 0, at most 1000")
	flags.StringVar(&f.promises, "promise", "2,3,5", "promised p99 as `multiples` of the latency alone on the smallest share, each above 0")
	flags.StringVar(&f.misses, "misses", "0.0003,0.001,0.003", "`parts` of the minutes that tandem's forecast may miss, above 0 and below 0.5")
	flags.StringVar(&f.utilisations, "utilisation", "0.1,0.15,0.2,0.25,0.3,0.4,0.5", "`targets` of autoscalers on utilisation, above 0, at most 1")
	flags.StringVar(&f.rates, "rate", "0.1,0.15,0.2,0.25,0.3,0.4,0.5", "`targets` of autoscalers on rate, above 0, at most 1")
	flags.StringVar(&f.static, "static", "2,3,4,5,6,8", "`multiples` of what the mean needs, each above 0")
	flags.DurationVar(&f.loadTime, "load-time", 25*time.Second, "`time` from the start of a replica until it serves, 0s to 1h")
	flags.StringVar(&f.loadTimes, "load-times", "", "CSV `file` with the true load times (timestamp_anon, value in ms, container_ip), a random one for each replica; policies know --load-time only")
	flags.Float64Var(&f.variation, "variation", .1, "squared coefficient of `variation` of the time of a request, 0 to 1")
	flags.Uint64Var(&f.seed, "seed", 1, "`seed` of arrivals and times")
	f.form.AddFlag(c)
	return c
}

func (f *inferenceFlags) parse() (*inference.Serving, error) {
	s := &inference.Serving{LoadTime: f.loadTime, Variation: f.variation, Seed: f.seed, WarmUp: time.Duration(f.warmUp) * time.Minute}
	switch {
	case !(f.scale > 0 && f.scale <= 1000):
		return nil, fmt.Errorf("flag --scale: %v, legal is above 0 and at most 1000", f.scale)
	case !(f.variation >= 0 && f.variation <= 1):
		return nil, fmt.Errorf("flag --variation: %v, legal is 0 to 1", f.variation)
	case f.loadTime < 0 || f.loadTime > time.Hour:
		return nil, fmt.Errorf("flag --load-time: %v, legal is 0s to 1h", f.loadTime)
	case f.warmUp < 0:
		return nil, fmt.Errorf("flag --warm-up: %d, legal is 0 or more", f.warmUp)
	case f.from < 0 || f.minutes < 1:
		return nil, fmt.Errorf("flags --from and --minutes: %d and %d, legal are 0 or more, and 1 or more", f.from, f.minutes)
	case len(f.loads) == 0:
		return nil, fmt.Errorf("flag --load is missing: it names a CSV file")
	}
	for _, x := range []struct {
		flag, text string
		to         *[]float64
		below      float64
	}{
		{"promise", f.promises, &s.Promises, 1000}, {"misses", f.misses, &s.Misses, .5}, {"utilisation", f.utilisations, &s.Utilisations, 1},
		{"rate", f.rates, &s.Rates, 1}, {"static", f.static, &s.Static, 1000},
	} {
		var err error
		if *x.to, err = numbers(x.text, x.below); err != nil {
			return nil, fmt.Errorf("flag --%s: %w", x.flag, err)
		}
	}
	var err error
	if s.Shares, err = f.readShares(); err != nil {
		return nil, err
	}
	if f.loadTimes != "" {
		if s.LoadTimes, err = inference.ReadLoadTimes(f.loadTimes); err != nil {
			return nil, fmt.Errorf("flag --load-times: %w", err)
		}
	}
	for _, path := range f.loads {
		l, err := inference.ReadLoad(path)
		if err != nil {
			return nil, fmt.Errorf("flag --load: %w", err)
		}
		part := l.Part(f.from, f.minutes, f.scale)
		if len(part.Rates) <= f.warmUp {
			return nil, fmt.Errorf("flags --from, --minutes and --warm-up: of %s, with %d minutes, %d are played, and %d of them as a warm-up", path, len(l.Rates), len(part.Rates), f.warmUp)
		}
		s.Loads = append(s.Loads, inference.NamedLoad{Name: strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gz"), ".csv"), Load: part})
	}
	return s, nil
}

// numbers reads numbers above 0 and at most a bound; an empty list has none.
func numbers(list string, most float64) (all []float64, err error) {
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil || !(x > 0 && x <= most) {
			return nil, fmt.Errorf("%q is no number above 0 and at most %g", part, most)
		}
		all = append(all, x)
	}
	return all, nil
}

// readShares returns what was measured of the workload on the wanted shares.
func (f *inferenceFlags) readShares() ([]measurements.Solo, error) {
	if f.profile == "" {
		return nil, fmt.Errorf("flag --profile is missing: it names a CSV file")
	}
	file, err := measurements.Load(f.profile)
	if err != nil {
		return nil, fmt.Errorf("flag --profile: %w", err)
	}
	percents, err := numbers(f.shares, 100)
	if err != nil || len(percents) == 0 {
		return nil, fmt.Errorf("flag --shares: %q has no percents from 1 to 100", f.shares)
	}
	var out []measurements.Solo
	for _, p := range percents {
		found := false
		for _, solo := range file.Solos {
			if solo.Workload == f.workload && solo.Share == vgpu.MilliGPU(10*p+.5) && solo.Latency > 0 {
				out, found = append(out, solo), true
				break
			}
		}
		if !found {
			return nil, fmt.Errorf("flags --workload and --shares: %s has no latency of %q on %g %% of a GPU", f.profile, f.workload, p)
		}
	}
	return out, nil
}
