// Package mps runs NVIDIA's Multi-Process Service for single GPUs. It starts or adopts the control daemon of a device,
// lists its servers and clients, and tries as a client whether it serves. It ends clients, replaces a broken daemon,
// and says what a container needs in order to be a client with a limited share.
//
// The package decides no share and no placement, and not when a daemon is broken: it uses SIGKILL only in Recycle, when
// its caller says so. SIGKILL goes only to a process that provably belongs to the pipe directory in question. A control
// daemon has its name, the directory in its environment, and its PID on record or the option that makes it a daemon. A
// server has its name, and either that daemon as its parent or the directory in its environment. Without that proof,
// for want of the host's PID namespace for example, the package reports the process and leaves it alone. Everything
// else is a command to MPS: a daemon that does not answer stays with its clients, which may still be at work.
//
// Words: the control daemon (nvidia-cuda-mps-control) listens in a pipe directory; it starts servers
// (nvidia-cuda-mps-server), which own the GPU; clients are CUDA programs. In this package each GPU has a daemon with
// directories of its own (docs/decisions/0005). A server is wedged when it accepts no new client while the daemon
// answers normally; only a canary, a client for this test, notices. The MPS host is a process that starts daemons for
// the agent (docs/decisions/0007).
//
// The facts about MPS come from NVIDIA's MPS documentation ("Tools and Interface Reference", "Environment Variables",
// "Troubleshooting"), the manual page nvidia-cuda-mps-control(1) and reports of users. Tests on H100s with driver
// 580.159 (test/gpu, docs/experiments/gpu.md) covered start, adoption, defaults, limits by UUID, read-only pipe
// directories and clients in PID namespaces and of other users. They also covered terminate_client, faults, and SIGKILL
// to clients, servers and daemons. These tests showed no wedge: a SIGKILL to a client with a queue of work was a fault.
// Other drivers may differ. The tests run against the stand-in of test/fakegpu with real processes. The package parses
// no text of an error message.
package mps
