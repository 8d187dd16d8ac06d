// Package metrics holds the Prometheus metrics of the agent: their names, labels, meanings and collectors.
//
// It counts what the agent's other packages report and decides nothing. Each metric is a Family in a table (table.go);
// the collectors are built from the table, and so is the agent's part of docs/reference/metrics.md. Names are
// tandem_agent_* for the agent itself, tandem_device_* for devices and tandem_pod_* for shares, in base units; a ratio
// is from 0 to 1.
package metrics
