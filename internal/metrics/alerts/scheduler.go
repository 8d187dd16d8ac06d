package alerts

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
)

// failing is the part of attempts that may fail before somebody has to look.
const failing = .1

var (
	ofScheduler  = query.Is(query.Job, sources.JobScheduler)
	ofController = query.Is(query.Job, sources.JobController)
)

// answers is the number of programs of a job that Prometheus reaches, also where it knows none.
func answers(job query.Matcher) query.Expr {
	return query.Of(sources.Stock("up"), job).Now().Sum().OrZero()
}

// largest is the value of a gauge of the scheduler, whose replicas all know the cluster.
func largest(f metrics.Family, m ...query.Matcher) query.Expr { return query.Of(f, m...).Now().Max() }

func scheduler() []Alert {
	attempts := func(m ...query.Matcher) query.Expr {
		return query.Of(sources.Stock("scheduler_schedule_attempts_total"), append(m, ofScheduler)...).Rate("10m").Sum()
	}
	binds := func(m ...query.Matcher) query.Expr {
		return query.Of(sources.Scheduler("binds_total"), m...).Rate("10m").Sum()
	}
	writes := func(results ...string) query.Expr {
		return query.Of(sources.Learning("writes_total"), query.In(result, results...)).Increase("15m").Sum()
	}
	return []Alert{
		{
			Name: "TandemSchedulerDown", For: 5 * time.Minute, Severity: Critical,
			Expr:    answers(ofScheduler).Below(1),
			Summary: "Prometheus reaches no scheduler of Tandem.",
			Do:      "Look at the Deployment tandem-scheduler: until it runs no pod with vGPUs gets a node.",
		},
		{
			Name: "TandemSchedulerWithoutLeader", For: 3 * time.Minute, Severity: Critical,
			Expr:    largest(sources.Stock("leader_election_master_status"), ofScheduler).Equal(0),
			Summary: "No replica of the scheduler leads, so none schedules.",
			Do:      "Look at the Lease tandem-scheduler and at what the replicas log about it.",
		},
		{
			Name: "TandemSchedulingFails", For: 15 * time.Minute, Severity: Warning,
			Expr:    attempts(query.Is(result, "error")).DividedBy(attempts()).Above(failing),
			Summary: "More than a tenth of the attempts to schedule a pod end with an error of the scheduler.",
			Do:      "Read the log of the scheduler: errors are faults of programs or of the API server, not want of room.",
		},
		{
			Name: "TandemBindsFail", For: 10 * time.Minute, Severity: Critical,
			Expr:    binds(query.Not(result, "bound")).DividedBy(binds()).Above(failing),
			Summary: "More than a tenth of the binds of pods with vGPUs fail.",
			Do:      "Read what the API server answers in the log of the scheduler: a webhook, an admission policy or its load.",
		},
		{
			Name: "TandemBindsInDoubt", For: 15 * time.Minute, Severity: Warning,
			Expr:    largest(sources.Scheduler("reservations"), query.Is(state, "unresolved")).Above(0),
			Summary: "The scheduler does not learn whether pods were bound, and keeps their GPUs.",
			Do:      "Look whether the API server answers reads of these pods; the scheduler asks until it does.",
		},
		{
			Name: "TandemStraySlots", For: 5 * time.Minute, Severity: Critical,
			Expr:    largest(sources.Scheduler("slots"), query.Is(state, "stray")).Above(0),
			Summary: "Pods without a valid assignment use slots of GPUs.",
			Do:      "Find the pods with vGPUs on nodes that have no valid annotation tandem-gpu.io/assignment, and delete them: another scheduler or a user placed them.",
		},
		{
			Name: "TandemNodesRefused", For: 15 * time.Minute, Severity: Warning,
			Expr:    largest(sources.Scheduler("nodes"), query.Is(state, "refused")).Above(0),
			Summary: "The scheduler places nothing on nodes that have a GPUNode.",
			Do:      "Read the condition Ready of the GPUNodes that are not ready.",
		},
		{
			Name: "TandemNodesPaused", For: 30 * time.Minute, Severity: Warning,
			Expr:    largest(sources.Scheduler("paused_nodes")).Above(0),
			Summary: "Kubelets refuse pods again and again, so their nodes take none.",
			Do:      "Read the status of the pods that failed at admission, and the log of the kubelet of their node.",
		},
		{
			Name: "TandemLearnerNotWriting", For: 15 * time.Minute, Severity: Warning,
			Expr:    writes("failed").Above(0).And(writes("written", "made").Equal(0)),
			Summary: "The scheduler cannot write what it learns into WorkloadProfiles.",
			Do:      "Read the log of the scheduler for what the API server answers; a restart of the scheduler would lose what was learned since.",
		},
		{
			Name: "TandemPromisesBroken", For: 10 * time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Learning("broken_promises_total")).Increase("1h").Sum().Above(5),
			Summary: "Neighbours slow pods down more than their max-slowdown allows.",
			Do:      "Look at the dashboard Interference; profiles of the neighbours may declare too little, or pods burst beyond their request.",
		},
	}
}

func waiting() []Alert {
	slots := func(m ...query.Matcher) query.Expr {
		return query.Of(sources.Scheduler("slots"), m...).Now().Max(state).Sum()
	}
	gangs := func(state string) query.Expr { return largest(sources.Gang("gangs"), query.Is("state", state)) }
	return []Alert{
		{
			Name: "TandemGangWaitsBesideRoom", For: 30 * time.Minute, Severity: Warning,
			Expr:    gangs("refused").Above(0).And(slots(query.Is(state, "free")).DividedBy(slots()).Above(.3)),
			Summary: "Gangs wait although nearly a third of all slots or more is free.",
			Do:      "Read the event of a waiting gang: it says which level, model, CPU or memory it lacks. Let it spread wider, or drain a node that is nearly free.",
		},
		{
			Name: "TandemRoomKeptTooLong", For: 2 * time.Hour, Severity: Warning,
			Expr:    gangs("draining").Above(0),
			Summary: "The scheduler keeps room for a gang for hours, since the owners of the rest do not end.",
			Do:      "Look who runs on the nodes that the event of the gang names, and ask the owners, or raise the priority of the gang.",
		},
		{
			Name: "TandemVictimsStay", For: 30 * time.Minute, Severity: Warning,
			Expr:    largest(sources.Preemption("pending")).Above(0),
			Summary: "Pods that were evicted for others do not leave.",
			Do:      "Look for pods with a deletionTimestamp that still run: a long grace period, a finalizer or a kubelet that is away.",
		},
		{
			Name: "TandemPodsRejected", For: time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Scheduler("admission_failures_total")).Increase("1h").Sum().Above(3),
			Summary: "Kubelets rejected more than three pods in an hour that the scheduler had bound.",
			Do:      "Read the status of the pods: agents that restart often, or slots that the kubelet gave to others.",
		},
	}
}
