// Package traces reads public traces of GPU clusters, and lists of jobs of a user's own.
//
// A trace is a CSV file (package csvtable). The formats are the jobs of any cluster (JobList), the nodes and pods of
// Alibaba's openb, and the jobs of Gavel, Philly, Pollux and Sia, Muri and of Alibaba's DLRM serving. Load reads any of
// them and says which one it found. Package evaluation/measurements reads measurements of workloads.
//
// The package does not decide when or where anything runs. A policy sees Job.Request of a job and Host.Node of a node;
// Arrivals repeats the order in which the openb experiments submit their pods.
package traces
