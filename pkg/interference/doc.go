// Package interference predicts how much the tenants of one device slow each other down.
//
// A tenant is a workload on a share of a device. Its profile says what it uses of a device without neighbours. A model
// computes the slowdown of each tenant of a device from the profiles of all, with an error. Observed co-runs of
// workloads correct the models; more observations correct more.
//
// The package does not decide where a pod goes: package placement does.
package interference
