// Package placeable answers Kueue's AdmissionChecks of the controller tandem-gpu.io/placeable: whether a Workload that has quota fits on
// the devices of the cluster now.
//
// Kueue counts quota and knows no devices: eight GPUs of a quota may be eight halves on eight nodes. The package asks package gang about the
// pods of a Workload before Kueue starts them, and writes the answer with its reason into the status of the Workload. Decide is the answer
// without any writing.
//
// The package has no queue and reserves nothing: the scheduler places the pods, and another pod may come first. Workloads, AdmissionChecks
// and ResourceFlavors are Kueue's objects.
package placeable
