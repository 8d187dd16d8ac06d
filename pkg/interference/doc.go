// Package interference predicts how much the tenants of one device slow each other down.
//
// A tenant is a workload on a share of a device. Its profile says what it uses of a device that it has alone; a model
// turns the profiles of all tenants of a device into the slowdown of each, with how sure it is. What was observed of
// workloads side by side corrects the models, in proportion to how often it was seen.
//
// The package does not decide where anything goes: placement does.
package interference
