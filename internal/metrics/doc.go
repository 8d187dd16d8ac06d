// Package metrics says what a metric of Tandem is: a Family with its type, labels, unit, range and meaning.
//
// The agent, the plugins of the scheduler and the learner each keep a table of families, the source of their collectors
// and of docs/reference/metrics.md. The package has the meaning of every label and writes that page.
package metrics
