// Package allocation knows which container holds which slots, and the assignment with which the agent started each pod.
//
// The package reads the checkpoint of the kubelet and its pod-resources API, and it keeps the agent's own checkpoint.
// The agent writes that to disk before it answers anything. Slots are tokens that the kubelet counts; the package
// compares them and decides nothing.
package allocation
