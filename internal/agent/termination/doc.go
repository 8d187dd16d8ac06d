// Package termination ends the GPU work of terminating pods before the kubelet's SIGKILL.
//
// The package decides when that is due. Package resident knows the processes of a pod, and package podsource the time
// of the SIGKILL.
package termination
