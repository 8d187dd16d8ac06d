// Package fakegpu describes GPUs that do not exist, for tests and the demo.
//
// The fakes stand where the driver stands: a libnvidia-ml.so.1 (./nvml) that the ordinary dynamic loader finds through
// LD_LIBRARY_PATH, and an nvidia-cuda-mps-control (./mpscontrol) that is found through PATH. Both read one JSON file, a
// State, named by the environment variable TANDEM_FAKEGPU_STATE, and read it again whenever it changes. Production
// binaries run over them unchanged.
//
// What the fakes do not do: they run no CUDA program, they enforce no limit, and they know only the calls and the
// commands that Tandem makes. Their answers follow nvml.h and NVIDIA's MPS documentation; nothing here was compared
// with a real GPU.
package fakegpu
