// Command limits measures the costs of the scheduler's limits of requests. It runs the scheduler as deploy/ has it, and
// the same without limits, each on a control plane of its own, one after the other in turns.
//
// A run is 500 nodes of eight GPUs and, at once, 250 gangs of four and 1,000 pods of three slots. The rate is of the
// 2,000 pods, from the first request to create one until the last has a node. Binds in doubt are those that the
// scheduler's metric counts as unknown. The command fails where the median with limits is below nine tenths of the
// other, or a bind was in doubt.
package main
