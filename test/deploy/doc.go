// Package deploy tests what deploy/ installs, on a real API server under RBAC: who may do what, with the accounts that
// the manifests make and with others, and what the scheduler reads out of its configuration.
//
// It holds tests only. The programs themselves run in test/e2e.
package deploy
