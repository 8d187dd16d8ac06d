// Package sandbox runs a real Kubernetes control plane on this machine, for tests and the demo.
//
// Build builds etcd, kube-apiserver and the other programs from the modules under tools/ and caches them outside of the
// tree. Start runs etcd and kube-apiserver on loopback in a directory of their own, with certificates made on the spot;
// Processes runs further programs beside them. As many control planes run at once as the machine has processors: Start waits for its
// turn. Everything ends with the process that started it, however that one ends:
// Linux sends SIGKILL to the children (PR_SET_PDEATHSIG).
//
// The package knows nothing of GPUs, and it is for tests only: etcd takes every client on loopback and does not sync to
// disk.
package sandbox
