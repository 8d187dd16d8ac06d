// Package scenario reads scenarios and plays them: a cluster, a workload, the policies to compare, seeds, and the
// expected results.
//
// A scenario is a YAML file; docs/guides/simulator.md lists its fields. The package reads it as a whole or not at all.
// A value that is missing, unknown, out of bounds or contradicts another gives an *Error with the file, the field, the
// value and the legal ones. The bounds keep sums within 64 bits and a typing error from taking days.
//
// The package decides which jobs there are, what they do under the policy native, and whether an expectation holds;
// package sim plays them, package requests the requests of fleets, and package bursts the bursts of notebooks. Generated
// workloads depend on the seed and on the generator's name only. Each generator has a PCG of its own (math/rand/v2,
// NewPCG with the seed and the FNV-1a hash of the name), so that another generator beside it changes nothing. The
// package rounds times to milliseconds, where processors that differ in the last bit of a logarithm agree.
package scenario
