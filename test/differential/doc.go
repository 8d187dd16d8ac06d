// Package differential plays one workload twice, through the real scheduler and through the simulator, and wants the same
// placements: pod by pod, the same node and the same devices.
//
// The scheduler is the stock one with the profile of deploy/scheduler/config.yaml, against clients in memory. Pods arrive
// one at a time: the next one is created when the one before is bound or refused. What the simulator leaves out of the
// framework (the shortlist, assumed pods, annotations, all other plugins) so shows as a difference.
//
// Beside that it puts single preemptions before the plugin DefaultPreemption and before the simulator's model of it.
package differential
