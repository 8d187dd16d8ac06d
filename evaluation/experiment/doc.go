// Package experiment plays the same workload under several policies and seeds, and sums up what came of it.
//
// It decides how runs are laid out and what is counted, so that a figure of docs/experiments.md means the same wherever it
// is printed. Where a pod goes is decided by package placement, what happens by package sim; both are told everything and
// know neither files nor time nor other runs. Runs go in parallel, and leave the same results in the same order however
// many go at once.
package experiment
