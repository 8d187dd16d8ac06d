// Package deploy tests the objects of deploy/, on a real API server under RBAC. The tests cover the permissions of the
// accounts that the manifests make and of others, and the configuration that the scheduler reads.
//
// There are only tests. The programs themselves run in test/e2e.
package deploy
