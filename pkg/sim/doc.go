// Package sim plays a workload on a cluster and returns its history.
//
// The simulator is a discrete-event one: time jumps from event to event, and the clock is the caller's data. Package
// placement alone decides where a pod goes, by the functions that the scheduler's plugin calls. Among the nodes whose
// host has the CPU and memory and whose devices fit, it takes the one with the highest score, the first by name among
// equals. The same setup gives the same history, whatever the order of the nodes. Package gang decides in the same way
// where a gang goes, and for which room it waits. Package reservation decides for which gang to keep room, and until
// when: the events of a run go to it, and the run carries out its effects.
//
// The package draws no random numbers and reads no files; the caller that makes the jobs does that. The simulator models no
// interference between neighbours: a placed pod does the work of its duration, unless it leaves for one of a higher priority.
// Package preemption chooses the victims, or a model of the stock scheduler's plugin. Package elastic decides how many
// members of an elastic gang run; the gang does its work faster with more of them. An inference fleet is an elastic gang that
// itself says how many replicas it wants.
//
// The words it adds to the glossary:
//
//   - job: one pod of a workload, with the time at which it arrives and how long it runs;
//   - instant: all that happens at one time. First pods end, or leave, and the pods start for which these left. Then
//     the simulator tries those that wait, and keeps room for a gang that it refuses at its turn. Then it tries the
//     gangs with something due. Then pods and gangs arrive, in the order of the jobs. Last, where it is time for that,
//     elastic gangs get other sizes;
//   - drain: keeping room for one gang while its present owners end;
//   - nomination: keeping room for a pod or a gang while its victims leave;
//   - arrived, allocated: the compute of all requests so far · that of running pods.
package sim
