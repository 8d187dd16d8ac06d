// Package summary sums up what became of the runs of a scenario, for package report to write.
//
// The package decides what to count and over which time to take a mean: percentages are means over time, waits are
// those of the jobs that found a place.
package summary
