package gpupreempt

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// prefix begins the names of the plugin's metrics.
const prefix = "tandem_scheduler_preemption_"

// Families returns the table of the plugin's metrics, the source of its collectors.
func Families() []tandem.Family { return slices.Clone(families) }

var families = []tandem.Family{
	{Name: prefix + "attempts_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "attempts", Range: "0 or more",
		Help: "Times that room was sought for a pod or gang that was refused everywhere, by result: evicting; waiting, for pods that leave already; " +
			"pending, its victims leave; missed, they left and it does not fit; deferred, by the bound of evictions; dry_run; ineligible; " +
			"never_helps; guarded; budgeted; filtered, other plugins refuse it; failed."},
	{Name: prefix + "evaluation_seconds", Type: tandem.Histogram, Unit: "seconds", Range: "0 or more",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		Help:    "Time to find out who makes room, for each attempt."},
	{Name: prefix + "evictions_deferred_total", Type: tandem.Counter, Unit: "plans", Range: "0 or more",
		Help: "Plans that had to wait because of the bound of evictions in a minute."},
	{Name: prefix + "lost_gpu_seconds_total", Type: tandem.Counter, Unit: "seconds of a GPU", Range: "0 or more",
		Help: "Work that was lost with the victims of pods and gangs that ask for vGPUs: their GPUs times the time since they started, or since their last checkpoint."},
	{Name: prefix + "pending", Type: tandem.Gauge, Unit: "pods", Range: "0 or more",
		Help: "Single pods for which room is kept while their victims leave."},
	{Name: prefix + "victims_total", Type: tandem.Counter, Labels: []string{"kind"}, Unit: "pods", Range: "0 or more",
		Help: "Pods that were evicted, by kind: single; surplus, a member that its gang runs on without; whole, a member of a gang that is evicted whole."},
}

// family returns a line of the table.
func family(name string) tandem.Family { return tandem.Find(families, prefix+name) }
