package gpugang

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// prefix begins the names of the plugin's metrics.
const prefix = "tandem_scheduler_gang_"

// Families returns the table of the plugin's metrics, the source of its collectors.
func Families() []tandem.Family { return slices.Clone(families) }

var families = []tandem.Family{
	{Name: prefix + "attempts_total", Type: tandem.Counter, Unit: "plans", Range: "0 or more",
		Help: "Times that a plan was sought for a gang, or for members that came later."},
	{Name: prefix + "cancelled_total", Type: tandem.Counter, Unit: "plans", Range: "0 or more",
		Help: "Plans that ended before their members were allowed to be bound: another plugin refused a node, a member was gone or did not come in time."},
	{Name: prefix + "domains_tried", Type: tandem.Histogram, Unit: "domains", Range: "0 or more",
		Buckets: []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
		Help:    "Domains in which a plan was tried member by member, for each plan that was sought."},
	{Name: prefix + "drains_total", Type: tandem.Counter, Unit: "drains", Range: "0 or more",
		Help: "Times that room was kept for a gang while its present owners end."},
	{Name: prefix + "gangs", Type: tandem.Gauge, Labels: []string{"state"}, Unit: "gangs", Range: "0 or more",
		Help: "Gangs with members that wait, by state: incomplete, refused, draining, planned, binding."},
	{Name: prefix + "held_members", Type: tandem.Gauge, Unit: "members", Range: "0 or more",
		Help: "Members of elastic gangs that wait because the targets of their gangs are smaller."},
	{Name: prefix + "refusals_total", Type: tandem.Counter, Labels: []string{"reason"}, Unit: "changes", Range: "0 or more",
		Help: "Times that a gang was refused for another reason than before, by reason."},
	{Name: prefix + "released_total", Type: tandem.Counter, Unit: "gangs", Range: "0 or more",
		Help: "Gangs whose bound members were evicted, because fewer than must run were bound by the placement deadline."},
	{Name: prefix + "repairs_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "members", Range: "0 or more",
		Help: "Members that failed after the members of their gang were allowed to be bound: kept, where the place of the member is kept for another try, or moved, where the member gets another place."},
	{Name: prefix + "spread_domains", Type: tandem.Histogram, Labels: []string{"level"}, Unit: "domains", Range: "1 or more",
		Buckets: []float64{1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128},
		Help:    "Domains that the members of a gang are on when they are planned, by level."},
	{Name: prefix + "wait_seconds", Type: tandem.Histogram, Unit: "seconds", Range: "0 or more",
		Buckets: []float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
		Help:    "Time from the first try of a gang, when as many members exist as must run, until its members are allowed to be bound."},
}

// family returns a line of the table.
func family(name string) tandem.Family { return tandem.Find(families, prefix+name) }
