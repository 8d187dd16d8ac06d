// Package experiment plays the same workload under several policies and seeds, and sums up what came of it.
//
// The package decides the layout of runs and the counted figures, so that a figure of docs/experiments.md means the
// same everywhere. Package placement decides where a pod goes, and package sim what happens; neither knows files, time
// or other runs. Runs go in parallel, and leave the same results in the same order however many go at once.
package experiment
