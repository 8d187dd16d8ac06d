// Package preemption decides who makes room for a pod or a gang of a higher priority: the cheapest owners of devices that are
// free together, where the preemptor can run once they are gone.
//
// It evicts in units: a pod, a surplus member of a gang (one beyond the least number that must run), or a whole gang. A plan
// frees devices on which the preemptor is placed by the rules of packages placement and gang; nobody is evicted in vain, and
// none of the units could stay.
//
// The words it adds to the glossary:
//
//   - preemptor: the pod or gang that needs room;
//   - victim: a pod that is evicted for it;
//   - unit: what is evicted together, or not at all;
//   - reprieve: to spare a unit, since all fit without its room;
//   - guard: a reason why a pod is not evicted, whatever its priority.
package preemption
