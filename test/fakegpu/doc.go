// Package fakegpu describes GPUs that do not exist, for tests and the demo.
//
// The fakes stand where the driver stands: a libnvidia-ml.so.1 (./nvml) and a libcuda.so.1 (./cuda) that the ordinary
// dynamic loader finds through LD_LIBRARY_PATH, and an nvidia-cuda-mps-control (./mpscontrol) that is found through
// PATH. They read one JSON file, a State, named by the environment variable TANDEM_FAKEGPU_STATE, and read it again
// whenever it changes. Production binaries run over them unchanged.
//
// A client of MPS is a connection to the fake daemon's socket: Dial makes one in a test, ./cmd/tenant is one in a
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
// shows their effect alone. A tenant can ask for its own progress, and report it or lie.
//
// What the fakes do not do: they compute nothing, they bound nothing but memory, contexts and the SM percentage in
// their own figures, and they know only the calls and the commands that Tandem and its GPU suite make. Each of them says what
// of it was read in NVIDIA's documentation, what was seen on one H100 with driver 580.159 (docs/experiments/gpu.md), and what
// is assumed. A client's context takes no memory here; on the H100 it took 58 to 514 MiB of its limit.
package fakegpu
