package refusals

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// prefix begins the names of the controller's metrics.
const prefix = "tandem_controller_refusal_"

// Results of an eviction.
const (
	resultEvicted = "evicted"
	resultFailed  = "failed"
)

// Families returns the table of the metrics.
func Families() []tandem.Family { return slices.Clone(families) }

var families = []tandem.Family{
	{Name: prefix + "evictions_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "evictions", Range: "0 or more",
		Help: "Evictions of pods that the agent of their node refused to start for good: evicted, or failed, where a later pass tries again."},
}
