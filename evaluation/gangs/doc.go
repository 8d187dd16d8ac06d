// Package gangs plays jobs whose workers train together on a cluster of whole GPUs, and compares how long they take under
// several policies.
//
// Lending plays them beside fleets of inference replicas, which come first.
//
// The package computes from measured steps what a job loses by its places, and has other policies for comparison (the
// default scheduler, DRAGON, Tiresias). The packages gang and preemption decide where the scheduler's own policies put
// a gang.
package gangs
