package alerts

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
)

// Labels that several alerts use.
const (
	device = "device"
	reason = "reason"
	state  = "state"
	result = "result"
)

// byDevice returns the largest value of a gauge for each device.
func byDevice(f metrics.Family, m ...query.Matcher) query.Expr {
	return query.Of(f, m...).Now().Max(query.Node, device)
}

func devices() []Alert {
	unhealthy, all := query.Of(sources.Agent("devices"), query.Is("health", "unhealthy")).Now().Sum(), query.Of(sources.Agent("devices")).Now().Sum()
	return []Alert{
		{
			Name: "TandemDeviceUnhealthy", For: 10 * time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Device("health"), query.In(state, "sick", "recovering")).Now().Sum(query.Node, device).Above(0),
			Summary: "Device {{ $labels.device }} of node {{ $labels.node }} takes no work for longer than a recovery takes.",
			Do:      "Read the reason in the status of the GPUNode, and do what it says: often a reset of the GPU, or a reboot of the node.",
		},
		{
			Name: "TandemManyDevicesUnhealthy", For: 10 * time.Minute, Severity: Critical,
			Expr:    unhealthy.DividedBy(all).Above(.2),
			Summary: "More than a fifth of all devices take no work.",
			Do:      "Look for what the devices have in common: a driver, a rack, an upgrade. Do not reset them one by one before you know.",
		},
		{
			Name: "TandemMPSDown", For: 5 * time.Minute, Severity: Critical,
			Expr:    query.Of(sources.Device("sick"), query.In(reason, "MPS.*")).Now().Max(query.Node, device, reason).Equal(1),
			Summary: "MPS does not serve device {{ $labels.device }} of node {{ $labels.node }}: {{ $labels.reason }}.",
			Do:      "Look whether the pod tandem-mps of the node runs and what the agent logs; replace the pod after a drain of the node.",
		},
		{
			Name: "TandemMPSRestarts", For: 5 * time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Device("recycles_total")).Increase("1h").Sum(query.Node, device).Above(3),
			Summary: "The agent replaced the MPS daemon of device {{ $labels.device }} of node {{ $labels.node }} more than three times in an hour.",
			Do:      "Find the tenant whose program breaks the MPS server each time it runs, and give it a GPU of its own.",
		},
		{
			Name: "TandemDeviceUnmonitored", For: 15 * time.Minute, Severity: Warning,
			Expr:    byDevice(sources.Device("monitored")).Equal(0),
			Summary: "Nobody would notice that device {{ $labels.device }} of node {{ $labels.node }} serves no program.",
			Do:      "Read the condition Monitored of the GPUNode: most often the agent's container has no CUDA library.",
		},
		{
			Name: "TandemDeviceTelemetryMissing", For: 10 * time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Agent("sample_errors_total")).Increase("10m").Sum(query.Node, device).Above(10),
			Summary: "The driver does not say how device {{ $labels.device }} of node {{ $labels.node }} is used.",
			Do:      "Run nvidia-smi on the node; the scheduler learns nothing from the device and panels about it are empty meanwhile.",
		},
		{
			Name: "TandemForeignPrograms", For: 15 * time.Minute, Severity: Warning,
			Expr:    byDevice(sources.Device("unattributed_processes")).Above(0),
			Summary: "Programs that belong to no container with a share use device {{ $labels.device }} of node {{ $labels.node }}.",
			Do:      "Find them with nvidia-smi on the node, and close the way past Tandem that they took (docs/guides/install.md, step 3).",
		},
	}
}

// byNode returns the largest value of a gauge for each node.
func byNode(f metrics.Family, m ...query.Matcher) query.Expr {
	return query.Of(f, m...).Now().Max(query.Node)
}

func agents() []Alert {
	up := query.Of(sources.Stock("up"), query.Is(query.Job, sources.JobAgent)).Now()
	writes := func(result string) query.Expr {
		return query.Of(sources.Agent("gpunode_writes_total"), query.Is("result", result)).Increase("10m").Sum(query.Node)
	}
	memory := func(states ...string) query.Expr {
		return query.Of(sources.Agent("shared_memory_bytes"), query.In(state, states...)).Now().Sum(query.Node)
	}
	return []Alert{
		{
			Name: "TandemAgentDown", For: 5 * time.Minute, Severity: Warning,
			Expr:    up.Max(query.Node, query.Instance).Equal(0),
			Summary: "Prometheus does not reach the agent of node {{ $labels.node }}.",
			Do:      "Look at the pod tandem-agent of the node: containers that run go on, and none with vGPUs starts until the agent is back.",
		},
		{
			Name: "TandemAgentMissing", For: 15 * time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Scheduler("nodes")).Now().Sum(query.Instance).Max().AboveThat(up.Equal(1).Count().OrZero()),
			Summary: "There are more GPUNodes than agents that answer.",
			Do:      "Compare kubectl get gpunodes with the pods of the DaemonSet tandem-agent: a node has lost its label or its agent, or a GPUNode is left over.",
		},
		{
			Name: "TandemAgentNotRegistered", For: 5 * time.Minute, Severity: Warning,
			Expr:    byNode(sources.Agent("registered")).Equal(0),
			Summary: "The kubelet of node {{ $labels.node }} does not know the agent, so the node offers no slots.",
			Do:      "Read the condition Ready of the GPUNode and the logs of agent and kubelet.",
		},
		{
			Name: "TandemGPUNodeNotWritten", For: 10 * time.Minute, Severity: Warning,
			Expr:    writes("error").Above(0).And(writes("success").Equal(0)),
			Summary: "The agent of node {{ $labels.node }} cannot write its GPUNode, so the scheduler sees an old state of its devices.",
			Do:      "Read the agent's log for what the API server answers: a role, an admission policy or the network is missing.",
		},
		{
			Name: "TandemAssignmentDrift", For: 5 * time.Minute, Severity: Critical,
			Expr:    byNode(sources.Agent("assignment_drift")).Above(0),
			Summary: "Containers on node {{ $labels.node }} have other devices or limits than the scheduler assigned.",
			Do:      "Cordon the node, and compare the assignment of its pods with the environment of their containers: two pods may share what one was promised.",
		},
		{
			Name: "TandemContainersRefused", For: 5 * time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Agent("prestart_failures_total")).Increase("15m").Sum(query.Node, reason).Above(5),
			Summary: "The agent of node {{ $labels.node }} refuses to start containers: {{ $labels.reason }}.",
			Do:      "Read the events of the pods that do not start; they say what the agent wants.",
		},
		{
			Name: "TandemSharedMemoryFull", For: 10 * time.Minute, Severity: Warning,
			Expr:    memory("free").DividedBy(memory("free", "used")).Below(.1),
			Summary: "The memory that tenants of node {{ $labels.node }} share with MPS is nearly full.",
			Do:      "Find the tenant that fills /dev/shm, or make it larger; add the component shm-sweep where files are left behind.",
		},
	}
}
