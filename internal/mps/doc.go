// Package mps runs NVIDIA's Multi-Process Service for single GPUs: it starts or adopts the control daemon of a device,
// asks whether it is well, and says what a container needs in order to be its client with a limited share.
//
// It decides no share and no placement, and it never ends a process but by MPS's own command quit: a daemon that does
// not answer is reported and left alone, because its clients may still be at work.
//
// Words: the control daemon (nvidia-cuda-mps-control) listens in a pipe directory; it starts servers
// (nvidia-cuda-mps-server), which own the GPU; clients are CUDA programs. In this package each GPU has a daemon with
// directories of its own (docs/decisions/0005).
//
// What is known of MPS here was read, not measured: NVIDIA's MPS documentation ("Tools and Interface Reference",
// "Environment Variables"), the manual page nvidia-cuda-mps-control(1) and reports of users. The tests run against the
// stand-in of test/fakegpu with real processes. Open until tried on a GPU: whether drivers apply a memory limit that
// names its device by UUID (NVIDIA/k8s-device-plugin#572 says that some did not); the texts of error messages (none is
// parsed).
package mps
