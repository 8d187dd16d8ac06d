package dashboards

import (
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
)

func interference() Dashboard {
	rate := query.RateInterval
	learning := func(name, by string) query.Expr {
		return query.Of(sources.Learning(name)).Rate(rate).Sum(by)
	}
	tenants := query.Of(sources.Share("info")).Now().Count(append(ofDevice, namespace, pod)...).Count(ofDevice...)
	return Dashboard{
		Name: "interference", Title: "Interference", Answers: "Do neighbours slow each other down, and does the scheduler know it beforehand?",
		Panels: []Panel{
			heat("Predicted slowdown", "How many pods were placed with which predicted slowdown by their neighbours?", Number, query.Of(sources.Scheduler("predicted_slowdown_ratio")).Buckets(rate)),
			heat("Measured slowdown", "How much slower than alone are pods that report a rate, in each interval? Compare with the prediction.", Number, query.Of(sources.Learning("measured_slowdown_ratio")).Buckets(rate)),
			lines("Broken promises in an hour", "How often were pods slowed down more than their max-slowdown allows?", Number,
				Query{query.Of(sources.Learning("broken_promises_total")).Increase("1h").Sum(), "intervals"}).from(1, 10),
			lines("Tenants of a device", "Who has neighbours, and how many?", Number, Query{indexed(tenants), gpu}),
			lines("Profiles", "Of how many workloads does the scheduler know something? Declared by users, or made by the scheduler.", Number,
				Query{query.Of(sources.Learning("workloads")).Now().Max(state), "{{state}}"}),
			lines("Observations", "How much does the scheduler learn: from pods alone, and beside others?", PerSecond, Query{learning("observations_total", "kind"), "{{kind}}"}),
			lines("What teaches nothing", "Why are reports not used? No-rate: the pod does not say how fast it is.", PerSecond, Query{learning("dropped_total", reason), "{{reason}}"}),
			lines("Writes of profiles", "Does what is learned reach the WorkloadProfiles?", PerSecond, Query{learning("writes_total", result), "{{result}}"}),
			lines("Profiles that wait to be written", "Does the writer keep up?", Number, Query{query.Of(sources.Learning("waiting")).Now().Max(), "workloads"}),
			lines("Scarce", "Do GPUs count as scarce, so that pods of known workloads share them? 1 is yes.", Number, Query{query.Of(sources.Scheduler("scarce")).Now().Max(), "scarce"}),
		},
	}
}
