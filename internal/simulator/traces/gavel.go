package traces

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// gavelJob reads a row of a trace of Gavel (OSDI'20). The App is the job_type, and each of the scale_factor workers has a
// whole GPU. The duration of a job depends on the GPU, so the durations are unknown.
func gavelJob(t *csvtable.Table, all *Trace) {
	j := nameless(t)
	j.App = t.Text("job_type")
	gang(t, &j, "scale_factor")
	j.Steps = t.Whole("total_steps", 1, MaxSteps)
	j.Arrive = t.Time("arrival_s", time.Second)
	all.Jobs = append(all.Jobs, j)
}
