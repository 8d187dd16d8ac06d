// Package traces reads public traces of GPU clusters, and lists of jobs of a user's own.
//
// A trace is a CSV file, plain or compressed with gzip, whose columns are found by their names: the jobs of any
// cluster (JobList), the nodes and pods of Alibaba's openb, the jobs and throughputs of Gavel, the jobs of Philly, Pollux
// and Sia, Muri and of Alibaba's DLRM serving, the step times and the progress by epoch that Pollux measured, what was
// measured of two workloads on one GPU (Lucid, Gavel, iGniter, the project's own GPU suite) and of one workload alone
// (Lucid, iGniter, the GPU suite, gpulet, MISO, MuxServe, GPUMemNet), and ways to serve models on MIG instances with
// their deployments (ParvaGPU). Load reads any of them and says which one it found. LoadSLOs reads what is asked of served
// models, which has no header.
//
// A file is read as a whole or not at all: whatever is missing, doubled, out of bounds or not a number gives an *Error
// that names the file, the line, the column, what stands there and what may. The bounds are far above the published
// traces; they keep sums of amounts within 64 bits and a hostile file within memory.
//
// The package does not decide when or where anything runs. What a policy sees of a job is Job.Request, what it sees of a
// node is Host.Node; Arrivals repeats the order in which the openb experiments submit their pods.
package traces
