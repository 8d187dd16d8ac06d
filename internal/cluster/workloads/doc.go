// Package workloads translates between WorkloadProfiles and the model of the core packages, and says which pods are one
// workload.
//
// It reads what users declare and what the scheduler learned of a workload, and the rate or latency that a pod wants of
// it. What is illegal in a profile is named and passed over. The package does not learn: package learning does, and
// writes what this package renders.
package workloads
