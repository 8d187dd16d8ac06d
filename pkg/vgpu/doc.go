// Package vgpu models shared GPUs: which pod holds which share of which device.
//
// A device of N slots has N equal parts. A container with k ≤ N slots gets a share of one device, never of two; one
// with a multiple of N gets whole devices. The ledger of a node adds up the assigned shares exactly. The ledger also
// has the holds: devices kept for pods before their bind, by priority.
//
// The package does not decide where a pod goes: package placement does. The package does no I/O.
package vgpu
