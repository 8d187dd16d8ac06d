// Package sim plays a workload on a cluster and tells what happened.
//
// It is a discrete-event simulator: time jumps from event to event, the clock is the caller's data. Where a pod goes is
// decided by package placement alone, by the functions that the scheduler's plugin calls: among the nodes whose host has
// the CPU and memory and whose devices fit, the one with the highest score, the first by name among equals. The same
// setup gives the same history, whatever the order in which the nodes are given. Where a gang goes, and for which room it
// waits, package gang decides in the same way. For which gang room is kept, and until when, package reservation decides: what
// happens in a run becomes its events, and the run carries out its effects.
//
// The package draws no random numbers and reads no files; who makes the jobs does that. It models no interference between
// neighbours: a pod that is placed does the work of its duration, unless it is evicted for one of a higher priority. Whom that
// takes, package preemption decides, or a model of the stock scheduler's plugin.
//
// The words it adds to the glossary:
//
//   - job: one pod of a workload, with the time at which it arrives and how long it runs;
//   - instant: all that happens at one time. Pods end, or leave, first; those start for whom they left; then those that wait are
//     tried, and room is kept for a gang that is refused when it is its turn; then gangs are tried for which something is due;
//     then pods and gangs arrive, in the order of the jobs;
//   - drain: room that is kept for one gang while its present owners end;
//   - nomination: room that is kept for a pod or a gang while those leave who are evicted for it;
//   - arrived, allocated: the compute that the pods so far asked for · that running pods hold.
package sim
