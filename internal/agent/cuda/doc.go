// Package cuda does a small piece of work on a GPU, as the least CUDA program would, and says what the CUDA driver
// answered.
//
// It decides nothing about a device: that is for the one who reads the answer. It is no binding of the CUDA API. It
// needs neither the CUDA headers nor the library when it is built: libcuda.so.1, which comes with the driver, is opened
// when the work is done. Under MPS the program that calls it is a client of the daemon that its environment names, and a
// call can block for ever, so it belongs in a process that its parent can do without.
//
// The functions, their types and the numbers of the errors are those of the CUDA driver API's documentation. They were
// tried with stand-ins for the library, and as the agent's canary on an H100 with driver 580.159 (docs/experiments/gpu.md).
package cuda
