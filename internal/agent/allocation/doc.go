// Package allocation knows which container holds which slots, and which assignment each pod was started with.
//
// It reads the checkpoint of the kubelet and its pod-resources API, and it keeps the own checkpoint of the agent, which is
// on disk before the agent answers anything. Slots are tokens that the kubelet counts; the package compares them and
// decides nothing.
package allocation
