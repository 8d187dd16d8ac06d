// Package podsource knows the pods of the node that request vGPUs.
//
// The source is the kubelet where it serves the Pods API, else the API server (decision 0021). The package keeps the
// few facts of each pod that the agent reads, and the time of the kubelet's SIGKILL. With the kubelet the agent needs
// no permission on pods. The importing packages decide what follows from the pods.
package podsource
