// Package gpunode writes the GPUNode of the node: its status, its conditions and its owner.
//
// It decides when to write and how the conditions are worded. The status itself comes from package inventory.
package gpunode
