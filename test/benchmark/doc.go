// Package benchmark compares the scheduler with the stock kube-scheduler: the same workloads, one after the other in
// one run, by Kubernetes' own scheduler_perf. The ratios count, since absolute figures move with the machine.
//
// ranges.yaml holds the allowed ranges and, beside them, the measured values. The benchmark is behind the build tag
// "bench", because it compiles a whole API server; `make bench` runs it.
package benchmark
