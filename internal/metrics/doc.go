// Package metrics holds the Prometheus collectors of the agent: their names, labels and help texts.
//
// It counts what others report and decides nothing. Names are tandem_agent_*, in base units.
package metrics
