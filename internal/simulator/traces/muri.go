package traces

import (
	"math"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// muriJob reads a row of a trace of Muri (SIGCOMM'22). Its times are milliseconds. The App is the model_name, each of
// the num_gpu GPUs counts as a worker, and StepTime is the iteration_time. muriJob does not read the times of the
// stages of an iteration.
func muriJob(t *csvtable.Table, all *Trace) {
	j := job(t, t.Text("job_id"))
	t.Unique("job_id", j.Name, "name")
	j.App = t.Text("model_name")
	gang(t, &j, "num_gpu")
	j.Arrive = t.Time("submit_time", time.Millisecond)
	j.Duration = csvtable.Lasting(t.Time("duration", time.Millisecond), time.Millisecond)
	j.Steps = t.Whole("iterations", 1, MaxSteps)
	j.Batch = t.WholeOr("batch_size", 1, MaxBatch)
	if t.Field("iteration_time") != "" {
		j.StepTime = t.Time("iteration_time", time.Millisecond)
	}
	j.Priority = int32(t.WholeOr("priority", 0, math.MaxInt32))
	all.Jobs = append(all.Jobs, j)
}
