package alerts

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
)

// series is a series of a family with its values, one a minute, in promtool's words: 0x4 is five times 0, 1+2x3 is 1, 3, 5, 7.
type series struct {
	family metrics.Family
	labels map[string]string
	values string
}

// example shows when an alert fires.
type example struct {
	alert string
	// sick are series with which the alert fires first at a time, and labels those that it has then.
	sick   []series
	fires  time.Duration
	labels map[string]string
	// well are series with which the alert never fires: the nearest to sick ones.
	well []series
}

// ls are labels, by name and value in turn.
func ls(pairs ...string) map[string]string {
	labels := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		labels[pairs[i]] = pairs[i+1]
	}
	return labels
}

var (
	gpu     = ls("node", "n1", "device", "GPU-a")
	n1      = ls("node", "n1")
	agentOf = func(node string) map[string]string {
		return ls("job", "tandem-agent", "instance", node+":9410", "node", node)
	}
	sched = ls("job", "tandem-scheduler", "instance", "s1")
	other = ls("job", "tandem-scheduler", "instance", "s2")
	fleet = ls("namespace", "lab", "fleet", "chat")
)

// and returns labels with others.
func and(labels map[string]string, pairs ...string) map[string]string {
	all := ls(pairs...)
	for k, v := range labels {
		all[k] = v
	}
	return all
}

// Sick series begin to be wrong after five minutes: a gauge at once, and a counter that grows from then on a minute later, with its first
// increase. An alert fires when it was wrong for as long as it waits.
func examples() []example {
	up, health, sick := sources.Stock("up"), sources.Device("health"), sources.Device("sick")
	writes, slots, gangs := sources.Agent("gpunode_writes_total"), sources.Scheduler("slots"), sources.Gang("gangs")
	attempts, binds := sources.Stock("scheduler_schedule_attempts_total"), sources.Scheduler("binds_total")
	learned, shared := sources.Learning("writes_total"), sources.Agent("shared_memory_bytes")
	return []example{
		{
			alert: "TandemDeviceUnhealthy", fires: 15 * time.Minute, labels: gpu,
			// It recovers for a while and is sick again: that is no health.
			sick: []series{{health, and(gpu, "state", "sick"), "0x4 1x5 0x1 1x60"}, {health, and(gpu, "state", "recovering"), "0x10 1x1 0x60"}, {health, and(gpu, "state", "healthy"), "1x4 0x70"}},
			well: []series{{health, and(gpu, "state", "sick"), "0x4 1x8 0x60"}, {health, and(gpu, "state", "healthy"), "1x4 0x8 1x60"}},
		},
		{
			alert: "TandemManyDevicesUnhealthy", fires: 15 * time.Minute, labels: nil,
			sick: []series{{sources.Agent("devices"), and(n1, "health", "unhealthy"), "0x4 3x60"}, {sources.Agent("devices"), and(n1, "health", "healthy"), "10x4 7x60"}},
			well: []series{{sources.Agent("devices"), and(n1, "health", "unhealthy"), "0x4 2x60"}, {sources.Agent("devices"), and(n1, "health", "healthy"), "10x4 8x60"}},
		},
		{
			alert: "TandemMPSDown", fires: 10 * time.Minute, labels: and(gpu, "reason", "MPSNotRunning"),
			sick: []series{{sick, and(gpu, "reason", "MPSNotRunning"), "_x5 1x60"}},
			well: []series{{sick, and(gpu, "reason", "MPSNotRunning"), "_x5 1x3 stale"}, {sick, and(gpu, "reason", "XID79"), "1x60"}},
		},
		{
			alert: "TandemMPSRestarts", fires: 14 * time.Minute, labels: gpu, // the fourth
			sick: []series{{sources.Device("recycles_total"), and(gpu, "reason", "MPSFault"), "0x4 0+1x60"}},
			well: []series{{sources.Device("recycles_total"), and(gpu, "reason", "MPSFault"), "0x4 0+1x3 3x60"}},
		},
		{
			alert: "TandemDeviceUnmonitored", fires: 20 * time.Minute, labels: gpu,
			sick: []series{{sources.Device("monitored"), gpu, "1x4 0x60"}}, well: []series{{sources.Device("monitored"), gpu, "1x4 0x10 1x60"}},
		},
		{
			alert: "TandemDeviceTelemetryMissing", fires: 17 * time.Minute, labels: gpu, // 12 errors
			sick: []series{{sources.Agent("sample_errors_total"), gpu, "0x4 0+6x60"}}, well: []series{{sources.Agent("sample_errors_total"), gpu, "0x4 0+6x1 6x60"}},
		},
		{
			alert: "TandemForeignPrograms", fires: 20 * time.Minute, labels: gpu,
			sick: []series{{sources.Device("unattributed_processes"), gpu, "0x4 1x60"}}, well: []series{{sources.Device("unattributed_processes"), gpu, "0x4 1x14 0x60"}},
		},
		{
			alert: "TandemAgentDown", fires: 10 * time.Minute, labels: ls("node", "n1", "instance", "n1:9410"),
			sick: []series{{up, agentOf("n1"), "1x4 0x60"}, {up, agentOf("n2"), "1x70"}},
			well: []series{{up, agentOf("n1"), "1x4 0x4 1x60"}, {up, ls("job", "else", "instance", "n1:9410"), "0x60"}},
		},
		{
			alert: "TandemAgentMissing", fires: 20 * time.Minute,
			// A second replica of the scheduler knows the same nodes.
			sick: []series{
				{sources.Scheduler("nodes"), and(sched, "state", "ready"), "2x70"}, {sources.Scheduler("nodes"), and(sched, "state", "refused"), "0x70"},
				{sources.Scheduler("nodes"), and(other, "state", "ready"), "2x70"}, {up, agentOf("n1"), "1x70"}, {up, agentOf("n2"), "1x4 stale"},
			},
			well: []series{
				{sources.Scheduler("nodes"), and(sched, "state", "ready"), "2x70"}, {sources.Scheduler("nodes"), and(other, "state", "ready"), "2x70"},
				{up, agentOf("n1"), "1x70"}, {up, agentOf("n2"), "1x70"},
			},
		},
		{
			alert: "TandemAgentNotRegistered", fires: 10 * time.Minute, labels: n1,
			sick: []series{{sources.Agent("registered"), n1, "1x4 0x60"}}, well: []series{{sources.Agent("registered"), n1, "1x4 0x4 1x60"}},
		},
		{
			alert: "TandemGPUNodeNotWritten", fires: 23 * time.Minute, labels: n1, // the last success was after three minutes and until four
			// The agent tries again after eight minutes.
			sick: []series{{writes, and(n1, "result", "error"), "0x9 1x7 2x7 3x40"}, {writes, and(n1, "result", "success"), "0+1x4 4x60"}},
			well: []series{{writes, and(n1, "result", "error"), "0+1x70"}, {writes, and(n1, "result", "success"), "0+1x70"}},
		},
		{
			alert: "TandemAssignmentDrift", fires: 10 * time.Minute, labels: n1,
			sick: []series{{sources.Agent("assignment_drift"), n1, "0x4 1x60"}}, well: []series{{sources.Agent("assignment_drift"), n1, "0x4 1x4 0x60"}},
		},
		{
			alert: "TandemContainersRefused", fires: 12 * time.Minute, labels: and(n1, "reason", "NoAssignment"), // six
			sick: []series{{sources.Agent("prestart_failures_total"), and(n1, "reason", "NoAssignment"), "0x4 0+3x60"}},
			well: []series{{sources.Agent("prestart_failures_total"), and(n1, "reason", "NoAssignment"), "0x4 0+1x5 5x60"}},
		},
		{
			alert: "TandemSharedMemoryFull", fires: 15 * time.Minute, labels: n1,
			sick: []series{{shared, and(n1, "state", "free"), "50x4 9x60"}, {shared, and(n1, "state", "used"), "50x4 91x60"}, {shared, and(n1, "state", "unjudged"), "5x70"}},
			well: []series{{shared, and(n1, "state", "free"), "50x4 11x60"}, {shared, and(n1, "state", "used"), "50x4 89x60"}, {shared, and(ls("node", "n2"), "state", "free"), "0x70"}, {shared, and(ls("node", "n2"), "state", "used"), "0x70"}},
		},
		{
			alert: "TandemSchedulerDown", fires: 10 * time.Minute,
			sick: []series{{up, sched, "1x4 0x60"}, {up, other, "1x4 stale"}}, well: []series{{up, sched, "1x4 0x60"}, {up, other, "1x70"}},
		},
		{
			alert: "TandemSchedulerWithoutLeader", fires: 8 * time.Minute,
			sick: []series{{sources.Stock("leader_election_master_status"), and(sched, "name", "tandem-scheduler"), "1x4 0x60"}, {sources.Stock("leader_election_master_status"), and(other, "name", "tandem-scheduler"), "0x70"}},
			well: []series{{sources.Stock("leader_election_master_status"), and(sched, "name", "tandem-scheduler"), "1x4 0x60"}, {sources.Stock("leader_election_master_status"), and(other, "name", "tandem-scheduler"), "0x6 1x60"}},
		},
		{
			alert: "TandemSchedulingFails", fires: 21 * time.Minute,
			sick: []series{{attempts, and(sched, "result", "error"), "0x4 0+1x60"}, {attempts, and(sched, "result", "scheduled"), "0+1x70"}},
			well: []series{{attempts, and(sched, "result", "error"), "0x4 0+1x60"}, {attempts, and(sched, "result", "scheduled"), "0+10x70"}, {attempts, ls("job", "kube-scheduler", "result", "error"), "0+100x70"}},
		},
		{
			alert: "TandemBindsFail", fires: 16 * time.Minute,
			sick: []series{{binds, and(sched, "result", "failed"), "0x4 0+1x60"}, {binds, and(sched, "result", "bound"), "0+1x70"}},
			well: []series{{binds, and(sched, "result", "failed"), "0x4 0+1x60"}, {binds, and(sched, "result", "bound"), "0+10x70"}},
		},
		{
			alert: "TandemBindsInDoubt", fires: 20 * time.Minute,
			sick: []series{{sources.Scheduler("reservations"), and(sched, "state", "unresolved"), "0x4 1x60"}},
			well: []series{{sources.Scheduler("reservations"), and(sched, "state", "unresolved"), "0x4 1x14 0x60"}, {sources.Scheduler("reservations"), and(sched, "state", "reserved"), "1x70"}},
		},
		{
			alert: "TandemStraySlots", fires: 10 * time.Minute,
			sick: []series{{slots, and(sched, "state", "stray"), "0x4 2x60"}}, well: []series{{slots, and(sched, "state", "stray"), "0x4 2x4 0x60"}, {slots, and(sched, "state", "sick"), "5x70"}},
		},
		{
			alert: "TandemNodesRefused", fires: 20 * time.Minute,
			sick: []series{{sources.Scheduler("nodes"), and(sched, "state", "refused"), "0x4 1x60"}},
			well: []series{{sources.Scheduler("nodes"), and(sched, "state", "refused"), "0x4 1x14 0x60"}, {sources.Scheduler("nodes"), and(sched, "state", "ready"), "4x70"}},
		},
		{
			alert: "TandemNodesPaused", fires: 35 * time.Minute,
			sick: []series{{sources.Scheduler("paused_nodes"), sched, "0x4 1x60"}}, well: []series{{sources.Scheduler("paused_nodes"), sched, "0x4 1x29 0x60"}},
		},
		{
			alert: "TandemLearnerNotWriting", fires: 33 * time.Minute, // the last one was written after three minutes and until four
			sick: []series{
				{learned, and(sched, "result", "failed"), "0x9 1x11 2x11 3x40"}, {learned, and(sched, "result", "written"), "0+1x4 4x60"}, {learned, and(sched, "result", "made"), "0x70"},
			},
			well: []series{{learned, and(sched, "result", "failed"), "0x4 0+1x60"}, {learned, and(sched, "result", "written"), "0+1x70"}, {learned, and(sched, "result", "made"), "0x70"}},
		},
		{
			alert: "TandemPromisesBroken", fires: 18 * time.Minute, // six
			sick: []series{{sources.Learning("broken_promises_total"), sched, "0x4 0+2x60"}}, well: []series{{sources.Learning("broken_promises_total"), sched, "0x4 0+1x5 5x60"}},
		},
		{
			alert: "TandemGangWaitsBesideRoom", fires: 35 * time.Minute,
			sick: []series{{gangs, and(sched, "state", "refused"), "0x4 1x60"}, {slots, and(sched, "state", "free"), "31x70"}, {slots, and(sched, "state", "assigned"), "69x70"}},
			well: []series{{gangs, and(sched, "state", "refused"), "0x4 1x60"}, {slots, and(sched, "state", "free"), "29x70"}, {slots, and(sched, "state", "assigned"), "71x70"}},
		},
		{
			alert: "TandemRoomKeptTooLong", fires: 125 * time.Minute,
			sick: []series{{gangs, and(sched, "state", "draining"), "0x4 1x180"}}, well: []series{{gangs, and(sched, "state", "draining"), "0x4 1x119 0x60"}},
		},
		{
			alert: "TandemVictimsStay", fires: 35 * time.Minute,
			sick: []series{{sources.Preemption("pending"), sched, "0x4 1x60"}}, well: []series{{sources.Preemption("pending"), sched, "0x4 1x29 0x60"}},
		},
		{
			alert: "TandemPodsRejected", fires: 8 * time.Minute, // four
			sick: []series{{sources.Scheduler("admission_failures_total"), sched, "0x4 0+2x60"}}, well: []series{{sources.Scheduler("admission_failures_total"), sched, "0x4 0+1x3 3x60"}},
		},
		{
			alert: "TandemControllerDown", fires: 15 * time.Minute,
			sick: []series{{up, ls("job", "tandem-controller", "instance", "c1"), "1x4 0x60"}}, well: []series{{up, ls("job", "tandem-controller", "instance", "c1"), "1x4 0x9 1x60"}},
		},
		{
			alert: "TandemControllerPassesFail", fires: 21 * time.Minute, // of fleets; the other features are off
			sick: []series{{sources.Fleet("failed_passes_total"), ls("instance", "c1"), "0x4 0+1x60"}},
			well: []series{{sources.Fleet("failed_passes_total"), ls("instance", "c1"), "0x4 0+1x2 2x60"}, {sources.Elastic("failed_passes_total"), ls("instance", "c1"), "0x60"}},
		},
		{
			alert: "TandemFleetPromiseBroken", fires: 15 * time.Minute, labels: fleet,
			sick: []series{{sources.Fleet("promise_kept"), fleet, "1x4 0x60"}}, well: []series{{sources.Fleet("promise_kept"), fleet, "1x4 0x9 1x60"}},
		},
		{
			alert: "TandemFleetUnmeasured", fires: 21 * time.Minute,
			sick: []series{{sources.Fleet("decisions_total"), ls("reason", "NoMetrics"), "0x4 0+1x60"}},
			well: []series{{sources.Fleet("decisions_total"), ls("reason", "NoMetrics"), "0x4 0+1x4 4x60"}, {sources.Fleet("decisions_total"), ls("reason", "Steady"), "0+1x60"}},
		},
		{
			alert: "TandemFleetPatchesFail", fires: 21 * time.Minute, labels: ls("kind", "route"),
			sick: []series{{sources.Fleet("patches_total"), ls("kind", "route", "result", "failed"), "0x4 0+1x60"}},
			well: []series{{sources.Fleet("patches_total"), ls("kind", "route", "result", "stale"), "0x4 0+1x60"}, {sources.Fleet("patches_total"), ls("kind", "scale", "result", "done"), "0+1x60"}},
		},
		{
			alert: "TandemNotebooksNotWoken", fires: 16 * time.Minute,
			// One request fails, and others are late before that is forgotten.
			sick: []series{{sources.Activator("requests_total"), ls("result", "failed"), "0x5 1x60"}, {sources.Activator("requests_total"), ls("result", "late"), "0x11 0+1x60"}},
			well: []series{{sources.Activator("requests_total"), ls("result", "woken"), "0+1x60"}},
		},
	}
}
