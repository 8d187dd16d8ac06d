package metrics

import (
	"slices"

	tandem "github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/version"
)

// Units and ranges.
const (
	bytes   = "bytes"
	seconds = "seconds"
	ratio   = "ratio"
	none    = "none"

	fromZero  = "0 or more"
	one       = "1"
	zeroOrOne = "0 or 1"
	toOne     = "0 to 1"
)

// share are the labels of everything about a container's share of a device.
var share = []string{"namespace", "pod", "container", "device"}

// useOf are the labels of share and the label that says where the value comes from.
var useOf = append(slices.Clone(share), "source")

// AgentFamilies returns the table of the agent's own metrics.
func AgentFamilies() []tandem.Family { return slices.Clone(agentTable) }

// DeviceFamilies returns the table of the metrics of devices.
func DeviceFamilies() []tandem.Family { return slices.Concat(deviceTable, deviceUseTable) }

// PodFamilies returns the table of the metrics of containers with a share.
func PodFamilies() []tandem.Family { return slices.Clone(podTable) }

var agentTable = []tandem.Family{
	{Name: "tandem_agent_allocations_total", Type: tandem.Counter, Unit: "containers", Range: fromZero,
		Help: "Containers that the kubelet asked slots for."},
	{Name: "tandem_agent_assignment_drift", Type: tandem.Gauge, Unit: "containers", Range: "0; more is a fault",
		Help: "Containers whose devices or limits differ from their pod's assignment. Must be 0."},
	{Name: "tandem_agent_cdi_specs", Type: tandem.Gauge, Unit: "files", Range: fromZero,
		Help: "CDI specs on the node that the agent wrote."},
	{Name: "tandem_agent_checkpoint_errors_total", Type: tandem.Counter, Labels: []string{"owner"}, Unit: "reads", Range: fromZero,
		Help: "Checkpoints that could not be read, by owner: agent or kubelet."},
	{Name: "tandem_agent_clients_ended_total", Type: tandem.Counter, Labels: []string{"cause"}, Unit: "processes", Range: fromZero,
		Help: "MPS clients whose GPU work was ended with terminate_client, by cause: termination of the pod, or drain of a sick device."},
	{Name: "tandem_agent_devices", Type: tandem.Gauge, Labels: []string{"health"}, Unit: "devices", Range: fromZero,
		Help: "Devices of the node, by health."},
	{Name: "tandem_agent_gpunode_writes_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "writes", Range: fromZero,
		Help: "Writes of the GPUNode status, by result."},
	{Name: "tandem_agent_pod_source", Type: tandem.Gauge, Labels: []string{"source"}, Unit: none, Range: zeroOrOne,
		Help: "1 for the source from which the agent reads the pods of its node: kubelet (the Pods API), or apiserver where the kubelet does not serve that; 0 for the other."},
	{Name: "tandem_agent_pod_watch_errors_total", Type: tandem.Counter, Unit: "watches", Range: fromZero,
		Help: "Watches of the node's pods that failed or broke. They are opened again."},
	{Name: "tandem_agent_prestart_duration_seconds", Type: tandem.Histogram, Unit: seconds, Range: fromZero,
		Help:    "Time from the kubelet's call to the written CDI specs, or to the refusal.",
		Buckets: []float64{0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}},
	{Name: "tandem_agent_prestart_failures_total", Type: tandem.Counter, Labels: []string{"reason"}, Unit: "starts", Range: fromZero,
		Help: "Container starts that were refused, by reason."},
	{Name: "tandem_agent_probe_duration_seconds", Type: tandem.Histogram, Labels: []string{"result"}, Unit: seconds, Range: fromZero,
		Help:    "Time that the canary took to try whether new MPS clients are served, by result.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}},
	{Name: "tandem_agent_rate_scrapes_total", Type: tandem.Counter, Labels: []string{"result"}, Unit: "scrapes", Range: fromZero,
		Help: "Attempts to read the metric that a pod names as its rate, by result: success, address (not the pod's own), unreachable, status, content, metric (not there, or no counter or gauge) or value."},
	{Name: "tandem_agent_rates_dropped_total", Type: tandem.Counter, Labels: []string{"reason"}, Unit: "values", Range: fromZero,
		Help: "Rates reported by pods that were not taken, by reason: malformed (an annotation, once for each pod), nan, infinite, negative or huge (above 1e12)."},
	{Name: "tandem_agent_registered", Type: tandem.Gauge, Unit: none, Range: zeroOrOne,
		Help: "1 while the kubelet watches the agent's slots, else 0."},
	{Name: "tandem_agent_registrations_total", Type: tandem.Counter, Unit: "registrations", Range: fromZero,
		Help: "Registrations with the kubelet that succeeded."},
	{Name: "tandem_agent_sample_errors_total", Type: tandem.Counter, Labels: []string{"device"}, Unit: "samples", Range: fromZero,
		Help: "Times that the driver did not tell the use of a device. The figures of that device are absent meanwhile."},
	{Name: "tandem_agent_shared_memory_bytes", Type: tandem.Gauge, Labels: []string{"state"}, Unit: bytes, Range: fromZero,
		Help: "Memory that the tenants of the node share with MPS (their /dev/shm), by state: used, free, and of the used what is unjudged: old, and of other users, so that the agent may not know whether somebody uses it. 0 where the agent does not sweep it."},
	{Name: "tandem_agent_shared_memory_swept_bytes_total", Type: tandem.Counter, Unit: bytes, Range: fromZero,
		Help: "Bytes of files that tenants left in shared memory and that the agent removed."},
	{Name: "tandem_agent_slots", Type: tandem.Gauge, Labels: []string{"device", "state"}, Unit: "slots", Range: fromZero,
		Help: "Slots of a device, by state: held by containers, free or unhealthy."},
	{Name: "tandem_agent_termination_errors_total", Type: tandem.Counter, Unit: "attempts", Range: fromZero,
		Help: "Attempts to end the clients of terminating pods that MPS refused or did not answer."},
	{Name: version.Metric, Type: tandem.Gauge, Labels: version.MetricLabels(), Unit: none, Range: one,
		Help: version.MetricHelp},
}

// deviceTable holds the metrics that change with events.
var deviceTable = []tandem.Family{
	{Name: "tandem_device_health", Type: tandem.Gauge, Labels: []string{"device", "state"}, Unit: none, Range: zeroOrOne,
		Help: "1 for the state that the device is in, 0 for the others: healthy, sick or recovering."},
	{Name: "tandem_device_monitored", Type: tandem.Gauge, Labels: []string{"device"}, Unit: none, Range: zeroOrOne,
		Help: "1 where somebody would notice that the device serves no program, else 0."},
	{Name: "tandem_device_recycles_total", Type: tandem.Counter, Labels: []string{"device", "reason"}, Unit: "recycles", Range: fromZero,
		Help: "Replaced MPS daemons, by the reason of the sickness that this cured."},
	{Name: "tandem_device_xid_errors_total", Type: tandem.Counter, Labels: []string{"device", "class"}, Unit: "errors", Range: fromZero,
		Help: "XID errors that the driver reported, by class: application, contained or reset."},
}

// deviceUseTable holds the metrics that each scrape computes.
var deviceUseTable = []tandem.Family{
	{Name: "tandem_device_contexts", Type: tandem.Gauge, Labels: []string{"device"}, Unit: "contexts", Range: fromZero,
		Help: "Processes with a context on the device, without MPS' own server."},
	{Name: "tandem_device_contexts_limit", Type: tandem.Gauge, Labels: []string{"device"}, Unit: "contexts", Range: "16, 48 or 60",
		Help: "MPS clients that the device serves at once. Absent where no limit is known."},
	{Name: "tandem_device_ecc_errors_total", Type: tandem.Counter, Labels: []string{"device", "kind"}, Unit: "errors", Range: fromZero,
		Help: "ECC errors of the device's memory since its last reset, by kind: corrected or uncorrected."},
	{Name: "tandem_device_info", Type: tandem.Gauge, Labels: []string{"device", "index", "model", "pci_bus", "parent", "enforcement"}, Unit: none, Range: one,
		Help: "1, with what the device is as labels."},
	{Name: "tandem_device_memory_bandwidth_utilization_ratio", Type: tandem.Gauge, Labels: []string{"device"}, Unit: ratio, Range: toOne,
		Help: "Part of the driver's last sample period, at most a second, in which device memory was read or written. Always 0 for MIG instances, which the driver does not measure."},
	{Name: "tandem_device_memory_bytes", Type: tandem.Gauge, Labels: []string{"device"}, Unit: bytes, Range: fromZero,
		Help: "Memory of the device."},
	{Name: "tandem_device_memory_used_bytes", Type: tandem.Gauge, Labels: []string{"device"}, Unit: bytes, Range: "0 to the device's memory",
		Help: "Memory in use by programs, known to Tandem or not."},
	{Name: "tandem_device_power_watts", Type: tandem.Gauge, Labels: []string{"device"}, Unit: "watts", Range: fromZero,
		Help: "Power that the device draws. Absent where it cannot tell."},
	{Name: "tandem_device_sick", Type: tandem.Gauge, Labels: []string{"device", "reason"}, Unit: none, Range: one,
		Help: "1 while the device takes no work, with the reason of the GPUNode. Absent for a healthy device."},
	{Name: "tandem_device_sm_utilization_ratio", Type: tandem.Gauge, Labels: []string{"device"}, Unit: ratio, Range: toOne,
		Help: "Part of the driver's last sample period, at most a second, in which a kernel ran on the device. Always 0 for MIG instances, which the driver does not measure."},
	{Name: "tandem_device_temperature_celsius", Type: tandem.Gauge, Labels: []string{"device"}, Unit: "degrees Celsius", Range: "about 20 to 100",
		Help: "Temperature of the GPU. Absent where it cannot tell."},
	{Name: "tandem_device_throttled", Type: tandem.Gauge, Labels: []string{"device", "reason"}, Unit: none, Range: one,
		Help: "1 while the device runs below its clock, by reason of the driver. Absent for reasons that do not hold."},
	{Name: "tandem_device_unattributed_memory_bytes", Type: tandem.Gauge, Labels: []string{"device"}, Unit: bytes, Range: fromZero,
		Help: "Memory of the processes that tandem_device_unattributed_processes counts."},
	{Name: "tandem_device_unattributed_processes", Type: tandem.Gauge, Labels: []string{"device"}, Unit: "processes", Range: fromZero,
		Help: "Processes on the device that belong to no container with a share of it: programs of the host, other pods, or an agent that does not see the host's PIDs."},
}

var podTable = []tandem.Family{
	{Name: "tandem_pod_compute_limit_ratio", Type: tandem.Gauge, Labels: share, Unit: ratio, Range: toOne,
		Help: "Part of each device's SMs that the container may use at most."},
	{Name: "tandem_pod_compute_request_ratio", Type: tandem.Gauge, Labels: share, Unit: ratio, Range: toOne,
		Help: "Part of each device that the container asked for: its slots by the device's."},
	{Name: "tandem_pod_contexts", Type: tandem.Gauge, Labels: share, Unit: "contexts", Range: fromZero,
		Help: "Processes of the container with a context on the device."},
	{Name: "tandem_pod_info", Type: tandem.Gauge, Labels: append(slices.Clone(share), "uid", "enforcement"), Unit: none, Range: one,
		Help: "1, with the UID of the pod and what keeps the share in its bounds as labels."},
	{Name: "tandem_pod_memory_bandwidth_utilization_ratio", Type: tandem.Gauge, Labels: useOf, Unit: ratio, Range: toOne,
		Help: "Part of the last interval in which the container read or wrote device memory, as tandem_pod_sm_utilization_ratio."},
	{Name: "tandem_pod_memory_limit_bytes", Type: tandem.Gauge, Labels: share, Unit: bytes, Range: fromZero,
		Help: "Device memory that each process of the container may allocate."},
	{Name: "tandem_pod_memory_request_bytes", Type: tandem.Gauge, Labels: share, Unit: bytes, Range: fromZero,
		Help: "Device memory that the container asked for."},
	{Name: "tandem_pod_memory_used_bytes", Type: tandem.Gauge, Labels: share, Unit: bytes, Range: fromZero,
		Help: "Device memory that the container's processes use. 0 until it is measured."},
	{Name: "tandem_pod_reported_rate", Type: tandem.Gauge, Labels: []string{"namespace", "pod"}, Unit: "of the pod's choice", Range: "0 to 1e12",
		Help: "Rate that the pod reports of itself, by annotation or metric. Absent where it reports none, or has not for three intervals. Nobody checks that it is true."},
	{Name: "tandem_pod_slots", Type: tandem.Gauge, Labels: share, Unit: "slots", Range: "1 to the device's slots",
		Help: "Slots of the device that the container holds. Init containers are told until they have ended, beside the containers that take their slots over."},
	{Name: "tandem_pod_sm_utilization_ratio", Type: tandem.Gauge, Labels: useOf, Unit: ratio, Range: toOne,
		Help: "Part of the last interval in which a kernel of the container ran: the sum over its processes of the mean of the driver's samples. 0 until it is measured."},
}
