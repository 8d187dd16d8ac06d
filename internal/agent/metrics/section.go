package metrics

import tandem "github.com/tandem-gpu/tandem/internal/metrics"

// Sections returns the agent's part of the reference.
func Sections() []tandem.Section {
	return []tandem.Section{
		{
			Title: "Shares of devices",
			Text: "One series for each container and device (for the reported rate: each pod), from the moment when the kubelet knows the pod with its assignment until its containers have ended. " +
				"Utilisation is a gauge of the last interval (`telemetry.interval`, 10 s unless set), not since the last scrape; take `avg_over_time()` for longer windows. " +
				"There is no counter of busy seconds: the driver tells samples of each process and leaves out periods in which it did nothing, so a process that works now and then is overestimated, and a sum over time would look exact and be wrong. " +
				"While the driver does not tell the use of a device, what it would have told is absent.",
			Families: PodFamilies(),
		},
		{
			Title:    "Devices",
			Text:     "One series for each device of the node: a GPU, or a MIG instance.",
			Families: DeviceFamilies(),
		},
		{
			Title:    "Agent",
			Text:     "Served by the agent at `/metrics`, as those above; the `go_*` and `process_*` metrics of Prometheus' client library come with them.",
			Families: AgentFamilies(),
		},
	}
}
