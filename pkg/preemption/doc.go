// Package preemption decides which pods are evicted for a pod or a gang of a higher priority: the cheapest pods without
// which the preemptor can run.
//
// It evicts in units: a pod, a surplus member of a gang (one beyond the least number that must run), or a whole gang.
// The rules of packages placement and gang place the preemptor on the devices that a plan frees. A plan evicts no unit
// in vain: each unit of it is needed. The caller evicts the pods, and decides when it asks again.
//
// The words it adds to the glossary:
//
//   - preemptor: the pod or gang that needs room;
//   - victim: a pod that is evicted for it;
//   - unit: the pods that are evicted together, or not at all;
//   - reprieve: to spare a unit without which the preemptor fits all the same;
//   - guard: a reason why a pod is not evicted, whatever its priority.
package preemption
