// Package gangs plays random histories of a cluster with gangs, and checks after every step that all of them are whole
// or absent.
//
// A history is a list of steps. Pods, gangs and nodes come and go, nodes are drained, and devices become unhealthy. The API server refuses
// binds, loses its answers or carries binds out late, and the scheduler restarts from what the API has. The scheduler
// is the real one with the plugins of production, in both of its modes: pod by pod, and a native PodGroup in one cycle.
// The API server is in memory, and the clock is that of testing/synctest: a deadline of minutes passes in no time, and
// after each step the world has settled.
//
// In a part of the histories the production controller runs too, and many gangs are elastic. The controller may die at any of its
// requests, its answers are lost, and users edit its targets. Members are placed and evicted as the targets say, and at the end,
// without faults, targets and members agree and nothing changes any more.
//
// At the end of a history faults end, and for a while nothing else is changed: no gang and no single pod that fits into what is free
// may wait, and no two gangs may wait for each other. After that all nodes and members come back, and the same holds. Then all pods run
// for a short time: each one that fits into the cluster by itself must have run.
//
// Other tests play random workloads of pods and gangs through this scheduler and through the simulator, and compare after each
// arrival where the pods are and who was evicted.
//
// The checks are laws, but for one promise: a preemptor runs soon after its victims are gone, and others are evicted for it once.
// Events may race each other so that it is broken. One of 1,000 random histories may break it, and the output says which did; more
// fail the test.
//
// A history that fails is shrunk and printed as a script. testdata holds those that once failed.
package gangs
