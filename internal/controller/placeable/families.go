package placeable

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// prefix begins the names of the controller's metrics.
const prefix = "tandem_controller_placeable_"

// Families returns the table of the controller's metrics, the source of its collectors.
func Families() []tandem.Family { return slices.Clone(families) }

var families = []tandem.Family{
	{Name: prefix + "answer_seconds", Type: tandem.Histogram, Unit: "seconds", Range: "0 or more", Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2},
		Help: "Time that an answer took: whether the pods of one Workload of Kueue fit. Reading the cluster comes before and is not in it."},
	{Name: prefix + "answers_total", Type: tandem.Counter, Labels: []string{"state"}, Unit: "answers", Range: "0 or more",
		Help: "Answers that were written into Workloads of Kueue: Ready, Pending, where other pods use what it needs, Retry, where it gives its quota back, or Rejected, " +
			"where its pods can never run."},
	{Name: prefix + "failed_passes_total", Type: tandem.Counter, Unit: "passes", Range: "0 or more",
		Help: "Passes over the Workloads of Kueue that failed at least in part."},
	{Name: prefix + "waiting", Type: tandem.Gauge, Unit: "workloads", Range: "0 or more",
		Help: "Workloads of Kueue that hold quota and have no places on devices."},
}

// family returns a line of the table.
func family(name string) tandem.Family { return tandem.Find(families, prefix+name) }
