// Package termination ends the GPU work of terminating pods before the kubelet kills their processes.
//
// It decides when that is due. Which processes belong to a pod is told by package resident, and when the kubelet kills a
// pod by package podsource.
package termination
