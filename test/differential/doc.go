// Package differential plays one workload twice, through the real scheduler and through the simulator, and wants the same
// placements: pod by pod, the same node and the same devices.
//
// The scheduler is the stock one with the profile of deploy/scheduler/config.yaml, against clients in memory. Pods
// arrive one at a time: the next one comes when the one before has a node or a refusal. So the parts of the framework
// that the simulator leaves out (the shortlist, assumed pods, annotations, all other plugins) show as a difference.
//
// Beside that it puts single preemptions before the plugin DefaultPreemption and before the simulator's model of it.
package differential
