// Package kubeletconn connects to the local sockets of the kubelet.
//
// It decides how long a call waits for a kubelet that is just coming back. It knows none of the services behind the
// sockets.
package kubeletconn
