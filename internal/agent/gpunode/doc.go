// Package gpunode writes the GPUNode of the node: its status, its conditions and its owner.
//
// The package decides when to write the GPUNode and words the conditions. The status itself comes from package
// inventory.
package gpunode
