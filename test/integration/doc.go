// Package integration tests the programs of Tandem together with an API server.
//
// Plays are tests that know a cluster by its API alone (see play). Those of decisions and messages run in bubbles of testing/synctest, with
// an API server in memory. If one in memory would not show what matters, they run on a real one; with TANDEM_PLAYS=all all of them do so,
// in each mode in which gangs can be declared. The first run on a machine builds etcd and kube-apiserver (see internal/sandbox).
package integration
