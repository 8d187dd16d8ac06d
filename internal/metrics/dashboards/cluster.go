package dashboards

import (
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
)

// window is the time over which panels look at how much a pod works: some intervals of telemetry.
const window = "5m"

// idle is the part of a time in which a pod may work and still counts as idle. The scheduler takes the same value when it learns.
const idle = .02

// Labels that several dashboards use.
const (
	device    = "device"
	namespace = "namespace"
	pod       = "pod"
	reason    = "reason"
	state     = "state"
	result    = "result"
)

var (
	ofDevice = []string{query.Node, device}
	ofShare  = []string{query.Node, namespace, pod, "container", device}
	// stockJob are the series of Tandem's scheduler, beside which the cluster's own serves metrics of the same names.
	stockJob = query.Is(query.Job, sources.JobScheduler)
)

// held is the part of each device that each container asked for; matchers choose among them.
func held(matchers ...query.Matcher) query.Expr {
	return query.Of(sources.Share("compute_request_ratio"), matchers...).Now()
}

// working is the part of the time in which a kernel of each container ran.
func working(matchers ...query.Matcher) query.Expr {
	return query.Of(sources.Share("sm_utilization_ratio"), matchers...).Mean(window)
}

// heldIdle is the part of each device that containers hold that do not work.
func heldIdle(matchers ...query.Matcher) query.Expr {
	return held(matchers...).And(working(matchers...).Below(idle), ofShare...)
}

// The scheduler may have several replicas, and each knows the whole cluster: of gauges the largest counts, not the sum.
func cluster() Dashboard {
	rate := query.RateInterval
	slots := query.Of(sources.Scheduler("slots")).Now().Max(state)
	attempt, bound := query.Of(sources.Stock("scheduler_scheduling_attempt_duration_seconds"), stockJob), query.Of(sources.Stock("scheduler_pod_scheduling_sli_duration_seconds"), stockJob)
	return Dashboard{
		Name: "cluster", Title: "Cluster", Answers: "Are the GPUs used, who waits and why, and does anything fail?",
		Panels: []Panel{
			value("GPUs", "How many devices the agents see: GPUs and MIG instances.", Number, query.Of(sources.Agent("devices")).Now().Sum()),
			value("Allocated", "Which part of the compute of healthy GPUs is assigned to pods.", Ratio, query.Of(sources.Scheduler("allocated_ratio")).Now().Max()),
			value("Fragmented", "Which part of the compute of healthy GPUs is free and of no use to the requests that usually arrive.", Ratio,
				query.Of(sources.Scheduler("fragmentation_ratio")).Now().Max()).from(.2, .4),
			value("Unhealthy devices", "How many devices take no work.", Number,
				query.Of(sources.Agent("devices"), query.Is("health", "unhealthy")).Now().Sum()).from(1, 5),
			lines("GPUs: held, at work, held and idle", "Do those who hold GPUs use them? Held is what containers asked for, at work is the part of the time in which a kernel ran, summed over containers. "+
				"Held and idle is held by containers that hardly worked for five minutes: what an owner could give back.", Number,
				Query{query.Of(sources.Agent("devices")).Now().Sum(), "all"}, Query{held().Sum().OrZero(), "held"},
				Query{working().Sum().OrZero(), "at work"}, Query{heldIdle().Sum().OrZero(), "held and idle"}),
			lines("Slots", "Is there room? Sick slots are on unhealthy devices. Stray slots are used by pods without a valid assignment, and must be 0.", Number, Query{slots, "{{state}}"}),
			lines("Pods that wait", "Who waits? Unschedulable pods wait for room; a growing active queue says that the scheduler is too slow.", Number,
				Query{query.Of(sources.Stock("scheduler_pending_pods"), stockJob).Now().Max("queue"), "{{queue}}"}),
			lines("Pods that wait, by plugin", "Why do they wait? GPUShare: no GPU fits. GPUGang: the gang is incomplete, or has no place. Others: CPU, memory, taints, affinity. A pod counts under each plugin that refused it.", Number,
				Query{query.Of(sources.Stock("scheduler_unschedulable_pods"), stockJob).Now().Max("plugin"), "{{plugin}}"}),
			lines("Refusals by reason", "Why does GPUShare refuse pods?", PerSecond, Query{query.Of(sources.Scheduler("refusals_total")).Rate(rate).Sum(reason), "{{reason}}"}),
			lines("Binds by result", "Do decisions reach the API server? Unknown: it did not tell in time, and the GPUs stay kept until it does.", PerSecond,
				Query{query.Of(sources.Scheduler("binds_total")).Rate(rate).Sum(result), "{{result}}"}),
			lines("Time of a decision", "How long does the scheduler take for one attempt?", Seconds,
				Query{attempt.Quantile(.5, rate), "half"}, Query{attempt.Quantile(.99, rate), "99 of 100"}).from(.1, 1),
			lines("Time until a pod is bound", "How long do pods wait until they have a node? Counts pods that were bound, all attempts together.", Seconds,
				Query{bound.Quantile(.5, rate), "half"}, Query{bound.Quantile(.99, rate), "99 of 100"}),
			lines("Preemption", "Does the scheduler evict pods for others, or why not?", PerSecond,
				Query{query.Of(sources.Preemption("attempts_total")).Rate(rate).Sum(result), "{{result}}"}),
			lines("Work lost by preemption", "What do evictions cost? GPU-seconds of victims since their last checkpoint, each second.", Number,
				Query{query.Of(sources.Preemption("lost_gpu_seconds_total")).Rate(rate).Sum(), "GPUs that work in vain"}),
			lines("Time to choose victims", "How long does the scheduler take to find out who makes room?", Seconds,
				Query{query.Of(sources.Preemption("evaluation_seconds")).Quantile(.99, rate), "99 of 100"}).from(.5, 2),
			lines("Nodes", "Which nodes take pods? Refused: the GPUNode is not ready. Paused: the kubelet refused a pod lately.", Number,
				Query{query.Of(sources.Scheduler("nodes")).Now().Max(state), "{{state}}"}, Query{query.Of(sources.Scheduler("paused_nodes")).Now().Max(), "paused"}),
			lines("Programs", "Does Prometheus reach all programs?", Number,
				Query{query.Of(sources.Stock("up"), query.In(query.Job, sources.Jobs()...)).Now().Sum(query.Job), "{{job}}"}),
			lines("Kept in memory", "For how many pods does the scheduler keep GPUs that no pod has yet? Unresolved ones should go within seconds.", Number,
				Query{query.Of(sources.Scheduler("reservations")).Now().Max(state), "{{state}}"}),
		},
	}
}
