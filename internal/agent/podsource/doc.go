// Package podsource knows the pods of the node that ask for vGPUs.
//
// It decides whom the agent asks: the kubelet where it serves the Pods API, else the API server (decision 0021), and it
// keeps of each pod the little that the agent reads, and when the kubelet will kill it. With the kubelet the agent needs
// no permission on pods. What follows from the pods is decided by the packages that ask.
package podsource
