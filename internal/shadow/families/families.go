// Package families has the table of the metrics of shadow mode, for their collector and for the reference page.
package families

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// Prefix begins the names of the metrics.
const Prefix = "tandem_shadow_"

// All returns the table of the metrics of shadow mode, the source of their collector.
func All() []tandem.Family { return slices.Clone(families) }

var world = []string{"world"}

var families = []tandem.Family{
	{Name: Prefix + "waiting_mean_seconds", Type: tandem.Gauge, Labels: world, Unit: "seconds", Range: "0 or more",
		Help: "How long the pods of the report waited on average; those that still wait count with the time so far."},
	{Name: Prefix + "waiting_p99_seconds", Type: tandem.Gauge, Labels: world, Unit: "seconds", Range: "0 or more",
		Help: "The time that 99 % of the pods of the report did not wait longer than."},
	{Name: Prefix + "waiting_pods", Type: tandem.Gauge, Labels: world, Unit: "pods", Range: "0 or more",
		Help: "Pods that wait now."},
	{Name: Prefix + "gpus_in_use", Type: tandem.Gauge, Labels: world, Unit: "GPUs", Range: "0 or more",
		Help: "GPUs that had a pod, on average over the time of the report."},
	{Name: Prefix + "allocated_ratio", Type: tandem.Gauge, Labels: world, Unit: "parts", Range: "0 to 1",
		Help: "Part of all GPUs that pods had, on average over the time of the report."},
	{Name: Prefix + "fragmented_ratio", Type: tandem.Gauge, Labels: world, Unit: "parts", Range: "0 to 1",
		Help: "Part of all GPUs that was free and of no use to the usual requests, on average over the time of the report."},
	{Name: Prefix + "partial_gang_gpu_seconds", Type: tandem.Gauge, Labels: world, Unit: "seconds", Range: "0 or more",
		Help: "GPU seconds of the report that gangs held while too few of their members ran."},
	{Name: Prefix + "slowdown_mean", Type: tandem.Gauge, Labels: world, Unit: "times", Range: "1 or more",
		Help: "Predicted slowdown of pods by those on the same GPU, on average over the time of the report. Absent while none is known."},
	{Name: Prefix + "unknown", Type: tandem.Gauge, Unit: "entries", Range: "0 or more",
		Help: "Entries of the report about what its figures leave out, nodes without known GPUs among them."},
}
