package traces

import (
	"fmt"
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

// gavelJob reads a row of a trace of Gavel (OSDI'20). The App is the job_type, and each of the scale_factor workers has a
// whole GPU. How long a job runs depends on the GPU, so the durations are unknown.
func gavelJob(t *table, all *Trace) {
	j := t.nameless()
	j.App = t.text("job_type")
	t.gang(&j, "scale_factor")
	j.Steps = t.whole("total_steps", 1, maxSteps)
	j.Arrive = t.time("arrival_s", time.Second)
	all.Jobs = append(all.Jobs, j)
}

// gavelRate reads a row of the throughputs of Gavel's jobs by GPU model and number of workers.
func gavelRate(t *table, all *Trace) {
	r := Rate{Line: t.line(), Model: t.text("gpu"), App: t.text("job"), Workers: int(t.whole("scale_factor", 1, maxWorkers))}
	t.unique("job", fmt.Sprintf("%q %q %d", r.Model, r.App, r.Workers), "gpu, job and scale_factor")
	r.Together = t.decimal("tput_consolidated_steps_s", maxRate, stepsPerSecond)
	if t.field("tput_unconsolidated_steps_s") != "" {
		r.Spread = t.decimal("tput_unconsolidated_steps_s", maxRate, stepsPerSecond)
	}
	all.Rates = append(all.Rates, r)
}
