// Package gangs plays jobs whose workers train together on a cluster of whole GPUs, and compares how long they take under
// several policies.
//
// It decides what a job loses by its places, from measured steps, and has the policies of others to compare with (the default
// scheduler, DRAGON, Tiresias). Where the scheduler's own policies put a gang is decided by packages gang and preemption.
package gangs
