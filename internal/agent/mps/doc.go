// Package mps runs NVIDIA's Multi-Process Service for single GPUs: it starts or adopts the control daemon of a device,
// asks it for its servers and clients, tries as a client whether it serves, ends clients, replaces a daemon that is
// beyond help, and says what a container needs in order to be its client with a limited share.
//
// It decides no share and no placement, and not when a daemon is beyond help: only Recycle kills, and only when its
// caller says so. It kills nothing but what provably belongs to the pipe directory in question: a control daemon by its
// name, the directory in its environment, and its record of its PID or the option that makes it a daemon; a server by
// its name, and by that daemon being its parent or by the directory in its environment. Where the proof is missing, for
// want of the host's PID namespace for example, the process is reported and left alone. Everything else asks MPS: a
// daemon that does not answer is left to its clients, which may still be at work.
//
// Words: the control daemon (nvidia-cuda-mps-control) listens in a pipe directory; it starts servers
// (nvidia-cuda-mps-server), which own the GPU; clients are CUDA programs. In this package each GPU has a daemon with
// directories of its own (docs/decisions/0005). A server is wedged when it lets no new client in while the daemon
// answers as if all were well; only a canary, a client made to try, notices. The MPS host is a process that starts
// daemons for the agent (docs/decisions/0007).
//
// What is known of MPS here was read in NVIDIA's MPS documentation ("Tools and Interface Reference", "Environment
// Variables", "Troubleshooting"), the manual page nvidia-cuda-mps-control(1) and reports of users, and was tried on H100s
// with driver 580.159 (test/gpu, docs/experiments/gpu.md): start, adoption, defaults, limits by UUID, read-only pipe
// directories, clients in PID namespaces and of other users, terminate_client, faults, and killed clients, servers and
// daemons. The wedge was not seen there: a client that is killed with a queue of work is a fault. Other drivers may differ.
// The tests run against the stand-in of test/fakegpu with real processes. No text of an error message is parsed.
package mps
