// Command demo shows Tandem at work on this machine, without GPUs, root or containers.
//
// It starts a real API server with deploy/ applied, four nodes of two GPU models (the production agent over a fake
// driver, and a stand-in for the kubelet), and the production scheduler with the configuration of deploy/. It submits
// notebooks, training and inference pods and some that must be refused, draws who got what, and checks the picture
// against the assignments, the capacity of the devices and the environment that each container was given: it exits
// with 0 only if all agrees. Everything ends and vanishes with it; --keep leaves it up until Ctrl-C.
package main
