// Package traces reads public traces of GPU clusters, and lists of jobs of a user's own.
//
// A trace is a CSV file (package csvtable): the jobs of any cluster (JobList), the nodes and pods of Alibaba's openb, the
// jobs of Gavel, Philly, Pollux and Sia, Muri and of Alibaba's DLRM serving. Load reads any of them and says which one it
// found. What was measured of workloads is not read here: evaluation/measurements does.
//
// The package does not decide when or where anything runs. What a policy sees of a job is Job.Request, what it sees of a
// node is Host.Node; Arrivals repeats the order in which the openb experiments submit their pods.
package traces
