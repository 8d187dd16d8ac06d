// Package summary sums up what became of the runs of a scenario, for package report to write.
//
// It decides what is counted and over which time a mean is taken: percentages are means over time, waits are those of the
// jobs that found a place. It does not decide what happens in a run, nor how the figures look.
package summary
