// Package integration tests parts of Tandem against a real API server, where a client in memory would not show what
// matters. Its first run on a machine builds etcd and kube-apiserver (see internal/sandbox).
package integration
