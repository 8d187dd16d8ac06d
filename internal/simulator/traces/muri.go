package traces

import (
	"math"
	"time"
)

// muriJob reads a row of a trace of Muri (SIGCOMM'22). Its times are milliseconds. The App is the model_name, each of the
// num_gpu GPUs counts as a worker, and StepTime is the iteration_time. The times of the stages of an iteration are not read.
func muriJob(t *table, all *Trace) {
	j := t.job(t.text("job_id"))
	t.unique("job_id", j.Name, "name")
	j.App = t.text("model_name")
	t.gang(&j, "num_gpu")
	j.Arrive = t.time("submit_time", time.Millisecond)
	j.Duration = lasting(t.time("duration", time.Millisecond), time.Millisecond)
	j.Steps = t.whole("iterations", 1, maxSteps)
	j.Batch = t.wholeOr("batch_size", 1, maxBatch)
	if t.field("iteration_time") != "" {
		j.StepTime = t.time("iteration_time", time.Millisecond)
	}
	j.Priority = int32(t.wholeOr("priority", 0, math.MaxInt32))
	all.Jobs = append(all.Jobs, j)
}
