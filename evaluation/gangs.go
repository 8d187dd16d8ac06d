package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/evaluation/gangs"
	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

// gangsFlags are what gangs and elastic take as text.
type gangsFlags struct {
	workloads, measured    []string
	loads, policies, seeds string
	parsePolicies          func(string) ([]string, error)
}

func gangsCommand() *cobra.Command {
	given := gangsFlags{parsePolicies: gangs.ParsePolicies}
	var form command.Output
	var training gangs.Training
	c := &cobra.Command{
		Use:   "gangs --workload JOBS.csv --measured FOLDER",
		Short: "Compares how jobs whose workers train together wait and run",
		Long: `Compares how jobs whose workers train together wait and run.

A job has a fixed number of workers with a GPU each, and a fixed batch size. It ends when it has made the progress that was
measured for all its epochs; how long a step takes follows from how many workers are on which node. Nothing else slows it
down. Policies decide once per interval; a job loses the restart time whenever it starts or goes on.

JOBS.csv has the jobs and FOLDER the step times and epochs in the layout of Pollux (Qiao et al., OSDI 2021) and Sia
(Jayaram Subramanya et al., SOSP 2023), "bert-aws.csv" or "bert/placements-aws.csv"; docs/experiments.md says where they are.

The policies are
  kubernetes        pod by pod, each on the node with the most free GPUs; a job of which a part has waited for the rest for
                    ten minutes is deleted and created again
  gang              whole jobs, first come first served, others pass; workers where kubernetes would put them
  dragon            the phases of DRAGON: whole jobs on few nodes, and none passes the first after half a minute
  tiresias          least attained service in two queues, jobs are stopped for others and go on later
  tandem            the scheduler: whole jobs close together, others pass; devices are kept for one that has waited for a day
                    where all pods in its way declare an end, and end within a fourth of its wait
  tandem-profiled   the same, and the scheduler is told what each job loses on several nodes
  tandem-anywhere   the same, and it is told that no job loses anything
  tandem-undrained  tandem, no devices are kept (drain: Disabled)
  tandem-drained    tandem, devices are kept for a job once it has waited for a minute and all that is in its way came
                    later, whoever that is and however long it takes (drain: Enabled)
  tandem-deadlines  tandem, pods declare an end after twice the expected time
  tandem-deadlines-drained  tandem-drained, pods declare an end after twice the expected time
  tandem-predicted  tandem, ends are predicted from the jobs that ended before; devices are kept after a minute in place of a day,
                    for jobs that are predicted to take no more GPU time than the mean of those that wait
  tandem-shortest   the least expected GPU time first, no devices are kept
  tandem-tiresias   the order of tiresias, the places of tandem
  tandem-service    jobs that had 16 GPU-hours have a lower priority from then on, and are stopped for others
  tandem-size       jobs with more than 16 GPUs have a lower priority, and are stopped for others
  tandem-priority   three priorities by expected GPU-hours, bounds at 4 and 16; lower ones are stopped for others
The bounds of the last three are for 64 GPUs, and grow with the cluster.
The expected time is that on as few nodes as possible. The policies from tandem-shortest on place as the scheduler does, in
an order that it does not have by itself; the last four stop whole jobs, which go on later with the work that they did.

The table has, for each policy, the mean hours from arrival to end for each workload, their mean, the hours by kubernetes ÷
these for all jobs (gain) and without those that kubernetes started anew (unstuck), how often jobs started again, how many
were stuck with a part of their workers, and the part of the held GPU time in which no work was done.`,
		Example: `  evaluation gangs --workload workload-1.csv --workload workload-2.csv --measured placements --measured scalability --measured validation
  evaluation gangs --workload workload-1.csv --measured traces/bert --kind dgx --nodes 8 --gpus 8 -o json
  evaluation gangs --workload workload-1.csv --measured traces --load 0.5,1,1.5,2 --policy kubernetes,tandem`,
		Args: command.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := given.parse(&training); err != nil {
				return err
			}
			nameRepeats(c.ErrOrStderr(), training.Measured)
			bar := command.Progress(c)
			training.Progress = bar.Step
			results, err := training.Run()
			bar.Close()
			if err != nil {
				return err
			}
			return form.Write(c.OutOrStdout(), results)
		},
	}
	given.flags(c, &training)
	form.AddFlag(c)
	return c
}

// nameRepeats says which files measured steps several times.
func nameRepeats(w io.Writer, measured []*measurements.File) {
	for _, t := range measured {
		if t.Repeated > 0 {
			fmt.Fprintf(w, "%s: rows that measure a step again: %d; the mean of its times counts\n", t.File, t.Repeated)
		}
	}
}

func (f *gangsFlags) flags(c *cobra.Command, training *gangs.Training) {
	flags := c.Flags()
	flags.StringArrayVar(&f.workloads, "workload", nil, "CSV `file` with jobs; may be given several times (required)")
	flags.StringArrayVar(&f.measured, "measured", nil, "CSV `file` with step times or epochs, or a folder with such files; may be given several times (required)")
	flags.StringVar(&training.Kind, "kind", "aws", "`kind` of node whose step times count, as the names of the files say it")
	flags.IntVar(&training.Nodes, "nodes", 16, "`number` of nodes")
	flags.IntVar(&training.GPUs, "gpus", 4, "`number` of GPUs of each node")
	flags.DurationVar(&training.Interval, "interval", time.Minute, "`time` between decisions, 1s to 1h")
	flags.DurationVar(&training.Restart, "restart", 30*time.Second, "`time` that a job loses at each start, 0s to 1h")
	flags.StringVar(&f.loads, "load", "", "instead of the workloads, so many `times` as many jobs as one has, drawn by the seed from all; separated by commas")
	flags.StringVar(&f.policies, "policy", experiment.All, "`names` of policies separated by commas, or all")
	flags.StringVar(&f.seeds, "seeds", "1-10", "`seeds` for what is drawn, a run each: single ones and ranges, separated by commas")
}

func (f *gangsFlags) parse(training *gangs.Training) (err error) {
	if training.Policies, err = f.parsePolicies(f.policies); err != nil {
		return fmt.Errorf("flag --policy: %w", err)
	}
	if training.Seeds, err = scenario.ParseSeeds(f.seeds); err != nil {
		return fmt.Errorf("flag --seeds: %w", err)
	}
	if training.Loads, err = parseLoads(f.loads); err != nil {
		return fmt.Errorf("flag --load: %w", err)
	}
	switch {
	case len(f.workloads) == 0:
		return errors.New("flag --workload is missing: it names a CSV file")
	case len(f.measured) == 0:
		return errors.New("flag --measured is missing: it names a CSV file or a folder")
	}
	if training.Workloads, err = loadAll(f.workloads); err != nil {
		return fmt.Errorf("flag --workload: %w", err)
	}
	files, err := csvFiles(f.measured)
	if err != nil {
		return fmt.Errorf("flag --measured: %w", err)
	}
	if training.Measured, err = loadAll(files); err != nil {
		return fmt.Errorf("flag --measured: %w", err)
	}
	return nil
}

// parseLoads reads numbers, each once; none from nothing. The numbers are loads of gangs, and of preemption.
func parseLoads(list string) ([]float64, error) {
	if list == "" {
		return nil, nil
	}
	parts := strings.Split(list, ",")
	all := make([]float64, 0, len(parts))
	for _, part := range parts {
		l, err := strconv.ParseFloat(part, 64)
		switch {
		case err != nil || !(l > 0 && l <= gangs.MaxLoad):
			return nil, fmt.Errorf("%q is no number above 0 and up to %d", part, gangs.MaxLoad)
		case slices.Contains(all, l):
			return nil, fmt.Errorf("%v appears twice", l)
		}
		all = append(all, l)
	}
	return all, nil
}

// csvFiles returns the files of a list of files and folders. It returns all files of a folder with a name that ends in
// .csv or .csv.gz, in the order of their paths, and those of the folders in it.
func csvFiles(paths []string) ([]string, error) {
	var all []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			all = append(all, path)
			continue
		}
		before := len(all)
		err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(strings.TrimSuffix(file, ".gz"), ".csv") {
				all = append(all, file)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(all) == before {
			return nil, fmt.Errorf("%s has no file whose name ends in .csv", path)
		}
	}
	return all, nil
}
