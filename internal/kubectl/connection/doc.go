// Package connection gets the snapshot from the scheduler that schedules, with the rights of the caller.
//
// It finds the scheduler's pods and the holder of their lease, forwards a port through the API server, and speaks HTTPS to the
// scheduler with the credentials of the kubeconfig. The package neither reads nor explains the snapshot.
package connection
