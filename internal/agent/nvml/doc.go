// Package nvml tells which GPUs and MIG instances a node has, how they are joined, what they do and whether they are
// sound, through NVIDIA's management library (NVML, libnvidia-ml.so.1).
//
// It decides nothing: what a sick device means for its pods is the agent's business. A device that does not answer is
// reported with what is known of it and the reason, and does not hide the others. After a failed initialisation no call
// reaches the library, and calls that older drivers lack are looked up first: a missing symbol would end the process.
// Values that make no sense are left out rather than passed on.
//
// Where the rules come from: nvml.h of go-nvml v0.13.4, NVIDIA's MPS and XID documentation. They were tried with
// go-nvml's mocks, by the real go-nvml with the stand-in library of test/fakegpu, and on one H100 with driver 580.159: discovery,
// memory, health, samples, processes and XID 31 (docs/experiments/gpu.md). Links, MIG and the sicknesses of a GPU were not seen.
package nvml
