// Package scenario reads scenarios and plays them: a cluster, a workload, the policies to compare, seeds, and what is
// expected of the results.
//
// A scenario is a YAML file; docs/guides/simulator.md lists its fields. It is read as a whole or not at all: whatever is
// missing, unknown, out of bounds or contradicts itself gives an *Error that names the file, the field, what stands there
// and what may. The bounds keep sums within 64 bits and a typing error from taking days.
//
// The package decides which jobs there are, and whether an expectation holds; package sim plays them. Workloads that are
// drawn depend on the seed and on the generator's name only: each generator draws from a PCG of its own (math/rand/v2,
// NewPCG with the seed and the FNV-1a hash of the name), so that another generator beside it changes nothing. Times are
// rounded to milliseconds, where processors that differ in the last bit of a logarithm agree.
package scenario
