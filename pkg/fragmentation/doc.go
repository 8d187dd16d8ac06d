// Package fragmentation measures free GPU that the usual requests cannot use.
//
// A cluster with 800 milli-GPU left on each of ten devices has eight GPUs free and still no device for a one-GPU job.
// Lost returns how much free compute a cluster loses in that way, given the requests that usually arrive (a Mix). The
// measure is that of Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023). A usual request loses the GPU of a
// node that it cannot use, and requests count by how often they arrive. Fills looks further: at what the usual requests
// leave idle of a node once they have filled it.
//
// The package does not decide where a pod goes: package placement does, by what a placement would lose.
package fragmentation
