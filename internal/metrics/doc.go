// Package metrics holds the Prometheus metrics of the agent: their names, labels, meanings and collectors.
//
// It counts what others report and decides nothing. Each metric is a Family in a table (table.go); the collectors are
// built from the table and so is docs/reference/metrics.md, together with the scheduler's table. Names are
// tandem_agent_* for the agent itself, tandem_device_* for devices and tandem_pod_* for shares, in base units; a ratio
// is from 0 to 1.
package metrics
