// Package measurements reads what others measured of workloads on GPUs, which the experiments take for the truth.
//
// A file is CSV (package csvtable): throughputs of Gavel's jobs, the step times and the progress by epoch that Pollux
// measured, what was measured of two workloads on one GPU (Lucid, Gavel, iGniter, the project's own GPU suite) and of one
// workload alone (Lucid, iGniter, the GPU suite, gpulet, MISO, MuxServe, GPUMemNet), and ways to serve models on MIG
// instances with their deployments (ParvaGPU). Load reads any of them, and the traces of package traces too, and says which
// one it found. LoadSLOs reads what is asked of served models, which has no header.
//
// The package does not decide what an experiment makes of a measurement. Where a file does not say on which GPU its authors
// measured, it says what they wrote elsewhere.
package measurements
