package fleets

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// prefix begins the names of the controller's metrics.
const prefix = "tandem_controller_fleet_"

// Families returns the table of the controller's metrics, the source of its collectors.
func Families() []tandem.Family { return slices.Clone(families) }

var (
	ofFleet   = []string{"namespace", "fleet"}
	ofVariant = []string{"namespace", "fleet", "variant"}
)

var families = []tandem.Family{
	{Name: prefix + "capacity", Type: tandem.Gauge, Labels: ofFleet, Unit: "requests a second", Range: "0 or more",
		Help: "Requests a second that the wanted replicas of an inference fleet serve within its promise."},
	{Name: prefix + "contests_total", Type: tandem.Counter, Unit: "contests", Range: "0 or more",
		Help: "Times that the controller left the replicas of a variant or the weights of a route alone, since somebody else had changed them again soon, twice in a row."},
	{Name: prefix + "decisions_total", Type: tandem.Counter, Labels: []string{"reason"}, Unit: "decisions", Range: "0 or more",
		Help: "Decisions on inference fleets, by the reason for the sizes: Grows, Shrinks, Cheaper, Steady, AtMost, PromiseTooShort, NoMetrics, AllFail or Paused."},
	{Name: prefix + "demand", Type: tandem.Gauge, Labels: ofFleet, Unit: "requests a second", Range: "0 or more",
		Help: "Requests a second that an inference fleet is sized for; absent while it is unknown how many arrive."},
	{Name: prefix + "failed_passes_total", Type: tandem.Counter, Unit: "passes", Range: "0 or more",
		Help: "Passes over the inference fleets that failed at least in part."},
	{Name: prefix + "patches_total", Type: tandem.Counter, Labels: []string{"kind", "result"}, Unit: "patches", Range: "0 or more",
		Help: "Patches of a route or a scale: done, stale, where the object had changed since it was read or the API server refused the value, or failed."},
	{Name: prefix + "promise_kept", Type: tandem.Gauge, Labels: ofFleet, Unit: "promise", Range: "0 or 1",
		Help: "Whether the measured latency of an inference fleet is within its promise; absent while the latency is unknown."},
	{Name: prefix + "replicas", Type: tandem.Gauge, Labels: ofVariant, Unit: "replicas", Range: "0 or more",
		Help: "Replicas that a variant of an inference fleet should have."},
	{Name: prefix + "slowdown", Type: tandem.Gauge, Labels: ofVariant, Unit: "ratio", Range: "0.25 to 16",
		Help: "How many times slower than declared the replicas of a variant are, as it was learned."},
	{Name: prefix + "weight", Type: tandem.Gauge, Labels: ofVariant, Unit: "ratio", Range: "0 to 1",
		Help: "Part of the requests that a variant should get."},
}

// family returns a line of the table.
func family(name string) tandem.Family { return tandem.Find(families, prefix+name) }
