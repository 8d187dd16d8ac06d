// Command demo shows Tandem at work on this machine, without GPUs, root or containers.
//
// It starts a real API server with deploy/ applied, and four nodes of two GPU models. A node has the production agent
// over a fake driver, and a stand-in for the kubelet. The production scheduler runs with the configuration of deploy/.
// The demo submits notebooks, training and inference pods and some impossible ones, and draws the owners of all slices.
// It checks the picture against the assignments, the capacity of the devices and the environment of each container. Then
// an elastic Job grows into idle GPUs, shrinks for an urgent pod and grows back; the production controller decides that, and
// Kubernetes' own controller of Jobs makes the pods. The demo exits with 0 only if all agrees. Everything ends and vanishes with it; --keep leaves it up until Ctrl-C.
package main
