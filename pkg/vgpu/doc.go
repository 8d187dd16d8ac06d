// Package vgpu models shared GPUs: which pod holds which share of which device.
//
// A device of N slots is shared in N equal parts. A container that asks for k ≤ N slots gets a share of one device,
// never of two; one that asks for a multiple of N gets whole devices. The ledger of a node adds up the assigned shares
// exactly. It also has the holds: devices kept for pods that are not bound yet, honoured by priority.
//
// The package does not decide where a pod goes: package placement does. It does no I/O.
package vgpu
