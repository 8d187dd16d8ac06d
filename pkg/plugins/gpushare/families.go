package gpushare

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

// prefix begins the names of the plugin's metrics.
const prefix = "tandem_scheduler_"

// Families returns the table of the plugin's metrics, the source of its collectors.
func Families() []tandem.Family { return slices.Clone(families) }

var families = []tandem.Family{
	{Name: prefix + "admission_failures_total", Type: tandem.Counter, Unit: "pods", Range: "0 or more",
		Help: "vGPU pods that this scheduler bound and that the kubelet of their node refused: they have failed for good."},
	{Name: prefix + "allocated_ratio", Type: tandem.Gauge, Unit: "ratio", Range: "0 to 1",
		Help: "Part of the compute of healthy GPUs that is assigned to pods. Nodes that take no vGPU pods do not count. " +
			"Absent while no healthy GPU is known."},
	{Name: prefix + "bind_errors_total", Type: tandem.Counter, Unit: "attempts", Range: "0 or more",
		Help: "Attempts to bind a vGPU pod that the API server answered with an error."},
	{Name: prefix + "binds_confirmed_total", Type: tandem.Counter, Unit: "binds", Range: "0 or more",
		Help: "Binds of vGPU pods that had taken effect although the API server answered with an error."},
	{Name: prefix + "binds_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "binds", Range: "0 or more",
		Help: "Binds of vGPU pods by result: bound, failed, or unknown when the API server did not tell in time."},
	{Name: prefix + "ended_pods_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "pods", Range: "0 or more",
		Help: "vGPU pods whose lengths the scheduler learned, by result: early, expected or late for pods that ended by themselves " +
			"before, in or after the 80 % interval that was predicted at their start; stopped for pods that were deleted or evicted. " +
			"Pods that had ended before the start of the scheduler count while the API server keeps them."},
	{Name: prefix + "fragmentation_ratio", Type: tandem.Gauge, Unit: "ratio", Range: "0 to 1",
		Help: "Part of the compute of healthy GPUs that is free and that the usual requests cannot use: for each kind of request " +
			"what it cannot use where it is, weighted by how often it arrives. A request for no GPU uses none. The rarest " +
			"requests, five percent, and nodes that take no vGPU pods do not count. Absent while no healthy GPU or no usual " +
			"request is known."},
	{Name: prefix + "nodes", Type: tandem.Gauge, Labels: []string{"state"}, Unit: "nodes", Range: "0 or more",
		Help: "Nodes with a GPUNode by state: ready, refused."},
	{Name: prefix + "occupancy_rebuilds_total", Type: tandem.Counter, Unit: "computations", Range: "0 or more",
		Help: "Times that the use of a node's GPUs was computed anew."},
	{Name: prefix + "paused_nodes", Type: tandem.Gauge, Unit: "nodes", Range: "0 or more",
		Help: "Nodes that take no vGPU pods for a while, since their kubelet refused one."},
	{Name: prefix + "predicted_slowdown_ratio", Type: tandem.Histogram, Unit: "ratio", Range: "1 or more",
		Buckets: []float64{1, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 3},
		Help: "Slowdown that was predicted for a pod beside its neighbours when its GPUs were chosen: time beside them by time alone. " +
			"Counted while anything is known of any workload, or any pod names a max-slowdown."},
	{Name: prefix + "refusals_total", Type: tandem.Counter, Labels: []string{"reason"}, Unit: "attempts", Range: "0 or more",
		Help: "Attempts to schedule a vGPU pod that this plugin refused, by reason."},
	{Name: prefix + "reservations", Type: tandem.Gauge, Labels: []string{"state"}, Unit: "pods", Range: "0 or more",
		Help: "Pods whose GPUs are kept in memory by state: reserved (bind under way), held (by another plugin), " +
			"unresolved (the API server did not tell whether they are bound)."},
	{Name: prefix + "rule_changes_total", Type: tandem.Counter, Labels: []string{"cause"}, Unit: "rules", Range: "0 or more",
		Help: "Times that all nodes were to be scored anew, by cause: mix (of usual requests), profiles (of workloads), sharing " +
			"(neighbours began or ceased to matter), scarcity (of GPUs)."},
	{Name: prefix + "scarce", Type: tandem.Gauge, Unit: "none", Range: "0 or 1",
		Help: "1 while GPUs count as scarce, so that pods of known workloads share them, else 0. 0 also while nothing is known of any workload."},
	{Name: prefix + "shortlist_misses_total", Type: tandem.Counter, Unit: "attempts", Range: "0 or more",
		Help: "Attempts to schedule a pod in which other plugins refused all of the best nodes."},
	{Name: prefix + "slots", Type: tandem.Gauge, Labels: []string{"state"}, Unit: "slots", Range: "0 or more",
		Help: "Slots of all GPUs by state: assigned to pods, free, sick (free on GPUs that are unhealthy or cordoned), " +
			"stray (used by pods without a valid assignment)."},
	{Name: prefix + "usual_requests", Type: tandem.Gauge, Unit: "kinds", Range: "0 or more",
		Help: "Kinds of requests that make up 95 percent of the usual ones: those of the arguments, or of the pods that arrived."},
}

// family returns a line of the table.
func family(name string) tandem.Family { return tandem.Find(families, prefix+name) }
