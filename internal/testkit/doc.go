// Package testkit draws clusters for tests, and runs scripts on them.
//
// A drawing has a line per node, devices between bars, owners of shares in brackets and holds in parentheses:
//
//	model T4 slots=4 memory=16Gi contexts=48
//	n1: g0 A100 [a:5 b:2/8Gi] (c:3@100) | g1 A100 sick
//	n2 cpu=64 memory=256Gi: g0 T4 | g1 T4
//	links n1: g0-g1 NV12
//
// Here pod a has 5 of 10 slots and memory in proportion, and b has 2 slots and 8 GiB. A hold keeps room of 3 slots for
// c with priority 100, and g1 is unhealthy. "a:8~" is the share of an init container, "a:1+" that of a sidecar. Memory
// after the model ("g0 A100 80Gi") replaces the model's. The host of n2 has room for 64 cores and 256 GiB more, the one
// of n1 for none. A pod on several devices has a container on each. Line breaks matter, blanks do not; "#" starts a
// comment. G stands for Gi.
//
// A script is a file of commands on such a cluster, run by cockroachdb/datadriven; see Script for the commands. Script
// checks the ledger after each of them.
package testkit
