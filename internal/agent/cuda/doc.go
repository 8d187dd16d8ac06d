// Package cuda does a small piece of work on a GPU, as the least CUDA program would, and says what the CUDA driver
// answered.
//
// The package decides nothing about a device; its caller judges the answer. The build needs neither the CUDA headers
// nor the library: the package opens libcuda.so.1, which comes with the driver, when it does the work. Under MPS the
// calling program is a client of the daemon that its environment names. A call can block for ever, so it belongs in a
// process whose parent can do without it.
//
// The functions, their types and the numbers of the errors are those of the CUDA driver API's documentation. The
// package ran with stand-ins for the library, and as the agent's canary on an H100 with driver 580.159
// (docs/experiments/gpu.md).
package cuda
