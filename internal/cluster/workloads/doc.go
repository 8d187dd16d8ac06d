// Package workloads translates between WorkloadProfiles and the model of the core packages, and says which pods are one
// workload.
//
// The package reads the declarations of users and the results of the scheduler, and the rate or latency that a pod
// wants. The package names and skips illegal values of a profile. The package does not learn: package learning does,
// and writes what this package renders.
package workloads
