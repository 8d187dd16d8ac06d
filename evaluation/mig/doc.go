// Package mig decides how many inference replicas serve a rate of requests, and how large each is.
//
// A model can be served in many ways: on MIG instances of several sizes, with batches of several sizes, by several
// processes. Each measured way is a Variant with a rate and a latency. Each model has a rate that it must serve and a
// promised latency (the SLO). Size chooses variants that keep both on the fewest devices. Pack puts instances on
// devices, at starts that the hardware allows. The problem is that of ParvaGPU (Lee et al., SC'24).
//
// The package does not decide which requests go where, starts nothing, and does not consider interference: MIG
// instances share neither compute nor memory.
package mig
