// Package kubeletconn connects to the local sockets of the kubelet.
//
// The package decides how long a call waits for a kubelet that is just coming back.
package kubeletconn
