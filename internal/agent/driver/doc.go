// Package driver finds what a container needs of the NVIDIA driver beside its device files: the libraries, nvidia-smi,
// and the hooks that let the container's loader find them.
//
// The places of these files differ by distribution and by how the driver was installed. NVIDIA's nvcdi (the library of
// its container toolkit) knows them; the agent passes on only the part that a CUDA program needs. nvcdi gets no NVML: a
// lost GPU cannot make it wait, and a function that an old libnvidia-ml lacks cannot end the process.
//
// Package internal/agent/edit adds the files of the devices that a container gets.
package driver
