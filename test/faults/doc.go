// Package faults breaks nodes on purpose and checks that Tandem's agent puts them right again.
//
// A Node is the production binary of the agent as a process, over the fake driver and the fake MPS daemons
// (test/fakegpu), beside a kubelet that is played (test/fakekubelet) and a real API server. What runs in the containers
// are real processes too, which use the device through MPS (test/fakegpu/cmd/tenant). So everything here can be killed.
//
// Three tests are built on it. TestRandomSequences strikes nodes with random sequences of faults while pods come and go;
// when all faults are lifted nothing may be lost. TestTable strikes with one fault at a time and measures how long
// the agent takes to notice and to recover: its rows are those of docs/faults.md. BenchmarkAgent measures what the agent
// itself costs.
//
// What is not here: containers in their own namespaces and cgroups, and the kubelet's own doing when a container
// ends. Both are in test/e2e.
package faults
