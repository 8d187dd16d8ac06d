package dashboards

import (
	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
)

// gpu is the legend of a device.
const gpu = "{{node}} GPU {{index}}"

// indexed names devices by NVML's index, which people know, beside their node.
func indexed(e query.Expr) query.Expr {
	return e.Named(query.Of(sources.Device("info")).Now().Max(query.Node, device, "index"), ofDevice, "index")
}

func node() Dashboard {
	chosen, rate := query.Chosen(query.Node), query.RateInterval
	gauge := func(f metrics.Family) query.Expr { return indexed(query.Of(f, chosen).Now().Max(ofDevice...)) }
	memory := query.Of(sources.Device("memory_used_bytes"), chosen).Now().Max(ofDevice...)
	contexts := query.Of(sources.Device("contexts"), chosen).Now().Max(ofDevice...)
	return Dashboard{
		Name: "node", Title: "Node", Answers: "What do the devices of a node do, are they well, and do containers start?",
		Variables: []Variable{{query.Node, sources.Device("info")}},
		Panels: []Panel{
			lines("Use", "How busy is each device? The part of the time in which a kernel ran.", Ratio, Query{gauge(sources.Device("sm_utilization_ratio")), gpu}),
			lines("Held", "Which part of each device do containers hold?", Ratio, Query{indexed(held(chosen).Sum(ofDevice...)), gpu}),
			lines("Memory in use", "Which part of the memory of each device is in use, by programs known to Tandem or not?", Ratio,
				Query{indexed(memory.DividedBy(query.Of(sources.Device("memory_bytes"), chosen).Now().Max(ofDevice...))), gpu}).from(.9, .98),
			lines("Memory bandwidth", "Which part of the time is device memory read or written? Neighbours harm each other here first.", Ratio,
				Query{gauge(sources.Device("memory_bandwidth_utilization_ratio")), gpu}),
			lines("Devices that are not healthy", "Which devices take no work? A recovering device is well again and is watched for a while.", Number,
				Query{indexed(query.Of(sources.Device("health"), chosen, query.In(state, "sick", "recovering")).Now().Sum(ofDevice...)), gpu}).from(0, 1),
			lines("Reasons of sickness", "Why is a device sick? The page of faults explains each reason.", Number,
				Query{query.Of(sources.Device("sick"), chosen).Now().Max(query.Node, device, reason), "{{node}} {{device}} {{reason}}"}),
			lines("MPS restarts in an hour", "How often was the MPS daemon of a device replaced, and what did that cure? Each costs the tenants of the device their work since the last checkpoint.", Number,
				Query{query.Of(sources.Device("recycles_total"), chosen).Increase("1h").Sum(query.Node, device, reason), "{{node}} {{device}} {{reason}}"}).from(1, 3),
			lines("XID errors in an hour", "What did the driver report? Application: a program made a mistake. Contained: over with its programs. Reset: the device needs one.", Number,
				Query{query.Of(sources.Device("xid_errors_total"), chosen).Increase("1h").Sum(query.Node, device, "class"), "{{node}} {{device}} {{class}}"}),
			lines("Throttled", "Which devices run below their clock, and why?", Number,
				Query{query.Of(sources.Device("throttled"), chosen).Now().Max(query.Node, device, reason), "{{node}} {{device}} {{reason}}"}),
			lines("Temperature", "How hot are the devices?", Celsius, Query{gauge(sources.Device("temperature_celsius")), gpu}).from(80, 90),
			lines("Power", "How much power do the devices draw?", Watts, Query{gauge(sources.Device("power_watts")), gpu}),
			lines("Contexts", "How close is each device to the number of programs that MPS serves at once?", Ratio,
				Query{indexed(contexts.DividedBy(query.Of(sources.Device("contexts_limit"), chosen).Now().Max(ofDevice...))), gpu}).from(.8, 1),
			lines("Programs that belong to no container", "Does anything use a device past Tandem?", Number, Query{gauge(sources.Device("unattributed_processes")), gpu}).from(0, 1),
			lines("Time to prepare a container", "How long does the agent keep a container from its start?", Seconds,
				Query{query.Of(sources.Agent("prestart_duration_seconds"), chosen).Quantile(.99, rate, query.Node), "{{node}}, 99 of 100"}).from(1, 10),
			lines("Starts that the agent refused", "Why do containers not start?", PerSecond,
				Query{query.Of(sources.Agent("prestart_failures_total"), chosen).Rate(rate).Sum(query.Node, reason), "{{node}} {{reason}}"}),
			lines("Containers that differ from their assignment", "Does what runs agree with what was decided? Must be 0.", Number,
				Query{query.Of(sources.Agent("assignment_drift"), chosen).Now().Max(query.Node), "{{node}}"}).from(0, 1),
			lines("Shared memory", "How much of the memory that tenants share with MPS is used?", Bytes,
				Query{query.Of(sources.Agent("shared_memory_bytes"), chosen).Now().Max(query.Node, state), "{{node}} {{state}}"}),
			lines("Writes of the GPUNode", "Does the agent tell the scheduler what it sees?", PerSecond,
				Query{query.Of(sources.Agent("gpunode_writes_total"), chosen).Rate(rate).Sum(query.Node, result), "{{node}} {{result}}"}),
		},
	}
}
