// Package faults breaks nodes on purpose and checks that Tandem's agent puts them right again.
//
// A Node is the production binary of the agent as a process, over the fake driver and the fake MPS daemons
// (test/fakegpu). Beside it are a stand-in for the kubelet (test/fakekubelet) and a real API server. The programs in
// the containers are real processes too, which use the device through MPS (test/fakegpu/cmd/tenant). So a test can send
// SIGKILL to everything here.
//
// Three tests use it. TestRandomSequences strikes nodes with random sequences of faults while pods come and go; after
// the end of all faults the node must be whole. TestTable strikes with one fault at a time and measures how long the
// agent takes to notice and to recover: its rows are those of docs/faults.md. BenchmarkAgent measures what the agent
// itself costs.
//
// Containers in their own namespaces and cgroups are missing, and so is the kubelet's own work when a container ends.
// Both are in test/e2e.
package faults
