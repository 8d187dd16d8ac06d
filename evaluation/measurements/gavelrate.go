package measurements

import (
	"fmt"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

// Rate is how fast a kind of job runs on a GPU model, in steps per second of all its workers together. Rates are finite
// and at most 1,000,000; 0 stands for no fit or no measurement.
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

// gavelRate reads a row of the throughputs of Gavel's jobs by GPU model and number of workers.
func gavelRate(t *csvtable.Table, all *File) {
	r := Rate{Line: t.Line(), Model: t.Text("gpu"), App: t.Text("job"), Workers: int(t.Whole("scale_factor", 1, traces.MaxWorkers))}
	t.Unique("job", fmt.Sprintf("%q %q %d", r.Model, r.App, r.Workers), "gpu, job and scale_factor")
	r.Together = t.Decimal("tput_consolidated_steps_s", maxRate, stepsPerSecond)
	if t.Field("tput_unconsolidated_steps_s") != "" {
		r.Spread = t.Decimal("tput_unconsolidated_steps_s", maxRate, stepsPerSecond)
	}
	all.Rates = append(all.Rates, r)
}
