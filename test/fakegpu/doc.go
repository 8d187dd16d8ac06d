// Package fakegpu describes GPUs that do not exist, for tests and the demo.
//
// The fakes stand where the driver stands. The ordinary dynamic loader finds a libnvidia-ml.so.1 (./nvml) and a
// libcuda.so.1 (./cuda) through LD_LIBRARY_PATH; an nvidia-cuda-mps-control (./mpscontrol) is in PATH. The fakes read
// one JSON file, a State, named by the environment variable TANDEM_FAKEGPU_STATE, and read it again whenever it
// changes. Production binaries run over them unchanged.
//
// A client of MPS is a connection to the fake daemon's socket. Dial makes one in a test, ./cmd/tenant is one in a
// container, and a CUDA program becomes one through the fake libcuda. The daemon writes what its clients use beside the
// state file (Usage), and the fake NVML computes processes, memory and utilisation from it. Over the socket go lines:
//
//	client {"percent":20,"memory":1073741824,"sm":40,"inFlight":true}   →   ok SERVERPID | fault | out of memory |
//	                                                                          too many contexts | nothing, for ever
//	load {…}                                                            →   loaded | out of memory
//	progress                                                            →   progress SPEED
//	fault | bye
//	                                                                    ←   terminated | fault
//
// Tenants of one device may slow each other down (Interference): each has a hidden sensitivity and pressure, and NVML
// shows their effect alone. A tenant can read its own progress, and report it or lie.
//
// The fakes compute nothing. They bound nothing but memory, contexts and the SM percentage in their own figures, and
// they have only the calls and the commands that Tandem and its GPU suite make. Each of them says which facts come from
// NVIDIA's documentation, which from one H100 with driver 580.159 (docs/experiments/gpu.md), and which are assumptions.
// A client's context takes no memory here; on the H100 it took 58 to 514 MiB of its limit.
package fakegpu
