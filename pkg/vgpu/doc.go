// Package vgpu models GPUs that are shared: who holds which share of which device.
//
// A device of N slots is shared in N equal parts. A container that asks for k ≤ N slots gets a share of one device,
// never of two; one that asks for a multiple of N gets whole devices. The ledger of a node adds up exactly the shares
// that are assigned, and knows the holds: room kept for pods that are not bound yet, honoured by priority.
//
// The package decides nothing about where a pod goes (see placement) and never touches the world.
package vgpu
