// Package elastic decides how many workers each elastic training job should have now.
//
// An elastic job runs with any of its legal numbers of workers (Job.Sizes). Workers compares these numbers for all jobs
// together and returns a target for each of them. Jobs grow into idle GPUs, and shrink for jobs that wait. The policy is a
// matter of configuration: one file of the package holds one policy.
//
// The Curve of a job says how much faster it is with more workers. It comes from declared or measured rates, and from a
// cautious prior where nothing is known. A change of size costs the job some work (Job.Cost), which the change must repay.
//
// A job with parameter servers may state a rate. Choose returns the cheapest numbers of workers and servers that reach it.
//
// The package does not start, evict or place a worker. It does not preempt: a job keeps its least number of workers until the
// scheduler evicts them for another reason. It does not choose batch sizes.
package elastic
