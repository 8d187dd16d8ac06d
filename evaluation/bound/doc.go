// Package bound computes how much of a cluster's GPUs any policy could have given away.
//
// A policy ends with a part of the arrived pods on the nodes. No such part has more GPUs than the best solution of a
// linear programme: how many nodes of each kind hold which pattern, a multiset of pods that one such node can hold. The
// programme may use a pattern on 2.5 nodes, which is why it is a bound and not a plan. Column generation finds the
// patterns that matter (Gilmore and Gomory, 1961). The bound holds for any prices of the pods, also for those of a
// solution that is not the best yet or that suffers from rounding.
//
// The package says nothing about order: the bound knows all pods in advance and may refuse those that fit. It does not
// decide anything that a scheduler uses.
package bound
