// Package metrics says what a metric of Tandem is: a Family with its type, labels, unit, range and meaning.
//
// The agent, the plugins of the scheduler and the learner each keep a table of families and build their collectors from
// it; docs/reference/metrics.md is written from the same tables. The package has the meaning of every label and writes
// that page. It holds no table of families and no collector.
package metrics
