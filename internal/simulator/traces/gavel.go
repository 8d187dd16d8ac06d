package traces

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Rate is how fast a kind of job runs on a GPU model, in steps per second of all its workers together. Rates are finite
// and at most 1,000,000; 0 says that it does not fit or was not measured.
type Rate struct {
	// Line of the file, from 1.
	Line int
	// Set is the measurement that the rate is from, where the file has several: "oracle", say.
	Set     string
	Model   string
	App     string
	Workers int
	// Together is the rate with all workers on one node, Spread with the workers on nodes of their own.
	Together float64
	Spread   float64
}

const stepsPerSecond = "steps per second"

// GavelJobs reads a trace of Gavel (OSDI'20), whose columns GavelTrace names. The App is the job_type, each of the
// scale_factor workers has a whole GPU, and the duration depends on the GPU: see OnModel.
func GavelJobs(r io.Reader, file string) ([]Job, error) { return jobs(r, file, GavelTrace) }

// GavelScaling reads the throughputs of Gavel's jobs by GPU model and number of workers, whose columns GavelThroughputs
// names.
func GavelScaling(r io.Reader, file string) ([]Rate, error) {
	t, err := readAs(r, file, GavelThroughputs)
	if err != nil {
		return nil, err
	}
	return t.Rates, nil
}

// GavelIsolated reads the throughputs of Gavel's jobs by GPU model, each job by itself, from a table of pairs of jobs,
// whose columns GavelPairs names. What it says of the pairs is in the Trace that Load gives.
func GavelIsolated(r io.Reader, file string) ([]Rate, error) {
	t, err := readAs(r, file, GavelPairs)
	if err != nil {
		return nil, err
	}
	return t.Rates, nil
}

func gavelJob(t *table, all *Trace) {
	j := t.nameless()
	j.App = t.text("job_type")
	t.gang(&j, "scale_factor")
	j.Steps = t.whole("total_steps", 1, maxSteps)
	j.Arrive = t.time("arrival_s", time.Second)
	all.Jobs = append(all.Jobs, j)
}

func gavelRate(t *table, all *Trace) {
	r := Rate{Line: t.line(), Model: t.text("gpu"), App: t.text("job"), Workers: int(t.whole("scale_factor", 1, maxWorkers))}
	t.unique("job", fmt.Sprintf("%q %q %d", r.Model, r.App, r.Workers), "gpu, job and scale_factor")
	r.Together = t.decimal("tput_consolidated_steps_s", maxRate, stepsPerSecond)
	if t.field("tput_unconsolidated_steps_s") != "" {
		r.Spread = t.decimal("tput_unconsolidated_steps_s", maxRate, stepsPerSecond)
	}
	all.Rates = append(all.Rates, r)
}

// OnModel returns copies of the jobs with the duration that their steps take on a GPU model with all workers on one node,
// rounded up to a millisecond, in the order of the jobs. Left out are those, and their number is unknown, for which the
// rates have no App on that model with as many workers, or only a rate of 0, or which would take longer than 31 years.
// Example: 95,121 steps at 23.8 steps per second take 3,996.681 s.
func OnModel(jobs []Job, rates []Rate, model string) (timed []Job, unknown int) {
	type kind struct {
		app     string
		workers int
	}
	speed := map[kind]float64{}
	for _, r := range rates {
		if r.Model == model {
			speed[kind{r.App, r.Workers}] = r.Together
		}
	}
	timed = slices.Clone(jobs)
	timed = slices.DeleteFunc(timed, func(j Job) bool { return speed[kind{j.App, j.Workers}] <= 0 })
	for i := range timed {
		j := &timed[i]
		seconds := float64(j.Steps) / speed[kind{j.App, j.Workers}]
		if seconds <= maxSeconds {
			j.Duration = time.Duration(math.Ceil(seconds*1000)) * time.Millisecond
		} else {
			j.Duration = 0
		}
	}
	timed = slices.DeleteFunc(timed, func(j Job) bool { return j.Duration == 0 })
	return timed, len(jobs) - len(timed)
}
