package dashboards

import (
	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
)

func gangs() Dashboard {
	rate := query.RateInterval
	wait := query.Of(sources.Gang("wait_seconds"))
	counted := func(f metrics.Family, by ...string) query.Expr { return query.Of(f).Rate(rate).Sum(by...) }
	variant := func(name string) query.Expr {
		return query.Of(sources.Fleet(name)).Now().Max(namespace, "fleet", "variant")
	}
	const ofVariant = "{{namespace}}/{{fleet}} {{variant}}"
	return Dashboard{
		Name: "gangs", Title: "Gangs, elastic jobs, fleets and notebooks", Answers: "Which groups wait, for what, and what does the controller do with those that run?",
		Panels: []Panel{
			lines("Gangs that wait", "In which phase are they? Incomplete: members are missing. Refused: no room. Draining: room is kept while its owners end. Planned, binding: about to start.", Number,
				Query{query.Of(sources.Gang("gangs")).Now().Max(state), "{{state}}"}),
			lines("Time until a gang starts", "How long do gangs wait from the first try on?", Seconds, Query{wait.Quantile(.5, rate), "half"}, Query{wait.Quantile(.95, rate), "95 of 100"}),
			lines("Plans", "How many plans are sought, and how many come to nothing?", PerSecond,
				Query{counted(sources.Gang("attempts_total")), "sought"}, Query{counted(sources.Gang("cancelled_total")), "cancelled"}, Query{counted(sources.Gang("released_total")), "released"}),
			lines("Gangs refused", "Why do gangs have no place?", PerSecond, Query{counted(sources.Gang("refusals_total"), reason), "{{reason}}"}),
			lines("Room kept", "How often is room kept for a gang while its owners end, and for how many single pods?", Number,
				Query{query.Of(sources.Gang("drains_total")).Increase("1h").Sum(), "gangs in an hour"}, Query{query.Of(sources.Preemption("pending")).Now().Max(), "pods now"}),
			lines("Domains of a gang", "How far apart are the members of gangs? The fewer domains of a level, the closer.", Number,
				Query{query.Of(sources.Gang("spread_domains")).Quantile(.5, rate, "level"), "{{level}}"}),
			lines("Elastic jobs", "How many elastic jobs are there, and how many of their members wait because their targets are smaller?", Number,
				Query{query.Of(sources.Elastic("gangs")).Now().Max(), "jobs"}, Query{query.Of(sources.Gang("held_members")).Now().Max(), "members that wait"}),
			lines("Elastic jobs: changes of size", "Why do they grow and shrink?", PerSecond, Query{counted(sources.Elastic("moves_total"), reason), "{{reason}}"}),
			lines("Elastic jobs: evictions", "Do surplus members leave? Budget: a PodDisruptionBudget forbids it.", PerSecond, Query{counted(sources.Elastic("evictions_total"), result), "{{result}}"}),
			lines("Elastic jobs: time of a decision", "Does the controller keep up?", Seconds, Query{query.Of(sources.Elastic("decision_seconds")).Quantile(.99, rate), "99 of 100"}).from(1, 5),
			lines("Fleets: promise kept", "Is the measured latency within the promise? 1 is yes. Absent where the latency is not measured.", Number,
				Query{query.Of(sources.Fleet("promise_kept")).Now().Max(namespace, "fleet"), "{{namespace}}/{{fleet}}"}),
			lines("Fleets: parts of the requests", "Which part of the requests should each variant get?", Ratio, Query{variant("weight"), ofVariant}),
			lines("Fleets: decisions", "Why do fleets have the sizes that they have? NoMetrics: Prometheus does not say how many requests arrive.", PerSecond,
				Query{counted(sources.Fleet("decisions_total"), reason), "{{reason}}"}),
			lines("Fleets: patches", "Do decisions reach routes and scale targets?", PerSecond, Query{counted(sources.Fleet("patches_total"), "kind", result), "{{kind}} {{result}}"}),
			lines("Notebooks", "How many notebooks are parked, idle or at work?", Number, Query{query.Of(sources.Notebook("states")).Now().Max(state), "{{state}}"}),
			lines("Requests for notebooks", "Do people reach their notebooks? Late, full and failed ones do not.", PerSecond, Query{counted(sources.Activator("requests_total"), result), "{{result}}"}),
			lines("Time to wake a notebook", "How long does a request for a parked notebook wait?", Seconds, Query{query.Of(sources.Activator("wait_seconds")).Quantile(.95, rate), "95 of 100"}).from(60, 300),
			lines("Passes of the controller that failed", "Does the controller work at all?", PerSecond,
				Query{counted(sources.Elastic("failed_passes_total")).OrZero(), "elastic jobs"}, Query{counted(sources.Fleet("failed_passes_total")).OrZero(), "fleets"},
				Query{counted(sources.Notebook("failed_passes_total")).OrZero(), "notebooks"}),
		},
	}
}
