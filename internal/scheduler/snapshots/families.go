package snapshots

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// prefix begins the names of the metrics.
const prefix = "tandem_scheduler_snapshot_"

// Families returns the table of the metrics of snapshots, the source of their collectors.
func Families() []tandem.Family { return slices.Clone(families) }

var families = []tandem.Family{
	{Name: prefix + "age_seconds", Type: tandem.Gauge, Unit: "seconds", Range: "0 or more",
		Help: "Time since the scheduler last looked at its state for a snapshot. Absent before the first request."},
	{Name: prefix + "build_seconds", Type: tandem.Histogram, Unit: "seconds", Range: "0 or more",
		Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3},
		Help:    "Time that it took to make a snapshot."},
	{Name: prefix + "bytes", Type: tandem.Gauge, Unit: "bytes", Range: "0 or more",
		Help: "Size of the last snapshot, as JSON without compression, for a caller who may see all namespaces."},
	{Name: prefix + "requests_total", Type: tandem.Counter, Labels: []string{"code"}, Unit: "requests", Range: "0 or more",
		Help: "Requests of callers who may get the snapshot, by the status code of the answer."},
}

// family returns a line of the table.
func family(name string) tandem.Family { return tandem.Find(families, prefix+name) }
