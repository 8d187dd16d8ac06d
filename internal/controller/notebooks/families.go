package notebooks

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// prefix begins the names of the controller's metrics.
const prefix = "tandem_controller_notebook_"

// Families returns the table of the controller's metrics, the source of its collectors.
func Families() []tandem.Family { return slices.Clone(families) }

var families = []tandem.Family{
	{Name: prefix + "contests_total", Type: tandem.Counter, Unit: "contests", Range: "0 or more",
		Help: "Times that the controller left a notebook alone, since somebody else had started it again soon after it was parked, twice in a row."},
	{Name: prefix + "failed_passes_total", Type: tandem.Counter, Unit: "passes", Range: "0 or more",
		Help: "Passes over the notebooks that failed at least in part."},
	{Name: prefix + "looks_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "looks", Range: "0 or more",
		Help: "Looks at notebooks whose pod runs: answered, unreachable, refused, where the token is not that of the server, malformed, where the answer is not that of a " +
			"Jupyter server, no-token, where the token cannot be read, or not-ready."},
	{Name: prefix + "parks_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "patches", Range: "0 or more",
		Help: "Patches that scale an idle notebook to zero: done, stale, where its size had changed since it was read, or failed."},
	{Name: prefix + "states", Type: tandem.Gauge, Labels: []string{"state"}, Unit: "notebooks", Range: "0 or more",
		Help: "Notebooks whose owners allow that they are parked: Active, Idle, Warned, Parked, Waking, or Invalid, where the controller leaves a notebook alone."},
	{Name: prefix + "warnings_total", Type: tandem.Counter, Unit: "warnings", Range: "0 or more",
		Help: "Warnings to owners that their notebook will be parked."},
}

// family returns a line of the table.
func family(name string) tandem.Family { return tandem.Find(families, prefix+name) }
