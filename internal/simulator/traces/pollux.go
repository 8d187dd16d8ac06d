package traces

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// polluxJob reads a row of a workload of Pollux (OSDI'21) or Sia (SOSP'23). The App is the application, and each of the
// num_replicas workers has a whole GPU. The duration of a job depends on its placement and its batch size, so the
// durations are unknown.
func polluxJob(t *csvtable.Table, all *Trace) {
	j := job(t, t.Text("name"))
	t.Unique("name", j.Name, "name")
	j.Arrive = t.Time("time", time.Second)
	j.App = t.Text("application")
	gang(t, &j, "num_replicas")
	j.Batch = t.WholeOr("batch_size", 1, MaxBatch)
	all.Jobs = append(all.Jobs, j)
}
