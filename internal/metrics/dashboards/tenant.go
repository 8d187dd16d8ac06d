package dashboards

import (
	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
)

func tenant() Dashboard {
	chosen := query.Chosen(namespace)
	sum := func(f metrics.Family) query.Expr { return query.Of(f, chosen).Now().Sum(namespace) }
	fleet := func(name string) query.Expr {
		return query.Of(sources.Fleet(name), chosen).Now().Max(namespace, "fleet")
	}
	return Dashboard{
		Name: "tenant", Title: "Tenant", Answers: "What does a namespace hold, does it use it, and how do its fleets do?",
		Variables: []Variable{{namespace, sources.Share("info")}},
		Panels: []Panel{
			lines("GPUs held", "How many GPUs does each namespace hold, shares added up?", Number, Query{held(chosen).Sum(namespace), "{{namespace}}"}),
			lines("GPUs at work", "How many of them work?", Number, Query{working(chosen).Sum(namespace), "{{namespace}}"}),
			lines("GPUs held by idle pods", "Which pods hold GPUs and hardly worked for five minutes?", Number, Query{heldIdle(chosen).Sum(namespace, pod), "{{namespace}}/{{pod}}"}),
			lines("GPUs held by pods", "Who in the namespace holds how much?", Number, Query{held(chosen).Sum(namespace, pod), "{{namespace}}/{{pod}}"}),
			lines("Memory", "How much of the device memory that it asked for does the namespace use?", Bytes,
				Query{sum(sources.Share("memory_request_bytes")), "{{namespace}} asked for"}, Query{sum(sources.Share("memory_used_bytes")), "{{namespace}} uses"}),
			lines("Use by pods", "Which pods work?", Ratio, Query{working(chosen).Sum(namespace, pod), "{{namespace}}/{{pod}}"}),
			lines("Rates that pods report", "How fast are the pods, in their own units? A drop when a neighbour comes is interference.", Number,
				Query{query.Of(sources.Share("reported_rate"), chosen).Now().Max(namespace, pod), "{{namespace}}/{{pod}}"}),
			lines("Fleets: requests", "For how many requests a second are fleets sized, and how many do their replicas serve?", PerSecond,
				Query{fleet("demand"), "{{namespace}}/{{fleet}} demand"}, Query{fleet("capacity"), "{{namespace}}/{{fleet}} capacity"}),
			lines("Fleets: slowdown", "How many times slower than declared are the replicas of each variant?", Number,
				Query{query.Of(sources.Fleet("slowdown"), chosen).Now().Max(namespace, "fleet", "variant"), "{{namespace}}/{{fleet}} {{variant}}"}).from(1.2, 2),
			lines("Fleets: replicas", "How many replicas should each variant have?", Number,
				Query{query.Of(sources.Fleet("replicas"), chosen).Now().Max(namespace, "fleet", "variant"), "{{namespace}}/{{fleet}} {{variant}}"}),
		},
	}
}
