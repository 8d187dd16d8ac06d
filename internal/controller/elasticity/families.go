package elasticity

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// prefix begins the names of the controller's metrics.
const prefix = "tandem_controller_elastic_"

// Families returns the table of the controller's metrics, the source of its collectors.
func Families() []tandem.Family { return slices.Clone(families) }

var families = []tandem.Family{
	{Name: prefix + "contests_total", Type: tandem.Counter, Labels: []string{"kind"}, Unit: "contests", Range: "0 or more",
		Help: "Numbers that the controller left alone, since two of its changes in a row were undone: members, in the field of a gang's owner, or servers."},
	{Name: prefix + "decision_seconds", Type: tandem.Histogram, Unit: "seconds", Range: "0 or more",
		Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 2, 5, 10},
		Help:    "Time of one decision on the sizes of all elastic gangs, without the requests that carry it out."},
	{Name: prefix + "evictions_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "evictions", Range: "0 or more",
		Help: "Evictions of members of elastic gangs that shrink: done, budget, where a PodDisruptionBudget forbade it, or failed."},
	{Name: prefix + "failed_passes_total", Type: tandem.Counter, Unit: "passes", Range: "0 or more",
		Help: "Passes over the elastic gangs that failed at least in part."},
	{Name: prefix + "gangs", Type: tandem.Gauge, Unit: "gangs", Range: "0 or more", Help: "Elastic gangs that exist."},
	{Name: prefix + "moves_total", Type: tandem.Counter, Labels: []string{"reason"}, Unit: "changes", Range: "0 or more",
		Help: "Changes of the sizes of elastic gangs that run, by the reason in the status of the ElasticTarget."},
	{Name: prefix + "server_changes_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "changes", Range: "0 or more",
		Help: "Changes of the number of parameter servers of elastic gangs: done, stale, where the number was no longer what the controller had read, or failed."},
}

// family returns a line of the table.
func family(name string) tandem.Family { return tandem.Find(families, prefix+name) }
