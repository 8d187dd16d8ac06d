// Package metrics holds the Prometheus metrics of the agent: their names, labels, meanings and collectors.
//
// The package counts what the agent's other packages report. Each metric is a Family in a table (table.go), from which
// the package builds the collectors, and hack/generate.sh the agent's part of docs/reference/metrics.md. Names are
// tandem_agent_* for the agent itself, tandem_device_* for devices and tandem_pod_* for shares, in base units; a ratio
// is from 0 to 1.
package metrics
