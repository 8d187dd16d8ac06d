// Package preemption decides which pods to evict for a pod or a gang of a higher priority: the cheapest pods without
// which the preemptor can run.
//
// Evictions are by unit: a pod, a surplus member of a gang (one beyond the least number that must run), or a whole
// gang. The rules of packages placement and gang place the preemptor on the devices that a plan frees. A plan has no
// superfluous unit. The caller evicts the pods, and decides when to call again.
//
// The words it adds to the glossary:
//
//   - preemptor: the pod or gang that needs room;
//   - victim: a pod that must leave for it;
//   - unit: the pods that leave together, or not at all;
//   - reprieve: to spare a unit without which the preemptor fits all the same;
//   - guard: a reason why a pod stays, whatever its priority.
package preemption
