// Package measurements reads what others measured of workloads on GPUs, which the experiments take for the truth.
//
// A file is CSV (package csvtable). There are throughputs of Gavel's jobs, and Pollux's step times and progress by
// epoch. There are co-runs of two workloads on one GPU (Lucid, Gavel, iGniter, the project's own GPU suite). There are
// workloads alone (Lucid, iGniter, the GPU suite, gpulet, MISO, MuxServe, GPUMemNet), and ways to serve models on MIG
// instances with their deployments (ParvaGPU). Load reads any of them, and the traces of package traces too, and says
// which one it found. LoadSLOs reads the demands of served models, which have no header.
//
// The package does not decide what an experiment makes of a measurement. If a file does not say on which GPU its authors
// measured, the package says what they wrote elsewhere.
package measurements
