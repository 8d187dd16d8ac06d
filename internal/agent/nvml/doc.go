// Package nvml describes the GPUs and MIG instances of a node: how they are joined, what they do and whether they work.
// The source is NVIDIA's management library (NVML, libnvidia-ml.so.1).
//
// The package decides nothing: package health decides what an unhealthy device means. The list keeps a device that does
// not answer, with its known facts and the reason. After a failed initialisation no call reaches the library. The
// package looks up calls that older drivers lack first: a missing symbol would end the process. The package leaves out
// values that make no sense.
//
// The sources of the rules are nvml.h of go-nvml v0.13.4, and NVIDIA's MPS and XID documentation. The package ran with
// go-nvml's mocks, by the real go-nvml with the stand-in library of test/fakegpu, and on one H100 with driver 580.159.
// The run on the H100 covered discovery, memory, health, samples, processes and XID 31 (docs/experiments/gpu.md). That
// GPU had no links, no MIG and no broken hardware.
package nvml
