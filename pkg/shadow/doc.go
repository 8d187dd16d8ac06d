// Package shadow says what Tandem would have done with the pods of another scheduler, and what that would have changed.
//
// Its input is facts: the nodes with their devices, pods that were created, bound by the other scheduler, and ended, each with its
// time. From them come two worlds. The other world is what happened. The world of Tandem is a run of package sim over the same pods:
// the same arrivals, the same lengths, places by Tandem's decisions. Both worlds are measured by the same function, so that a
// difference between their figures is a difference between their placements.
//
// The running time of a pod is known when it has ended. So each report plays the period anew, with all that is known by then; a
// world that is played along with the clock would keep pods too long that it started before the other scheduler did. A pod that
// still runs in reality runs on in the world of Tandem too.
//
// The package does not evict in either world, knows no pods without GPUs beside the room that they take of hosts, and lets pods that
// share a device run as long as they ran: the cost of sharing is a figure of its own, the predicted slowdown.
//
// The words it adds to the glossary:
//
//   - period: a time in which the nodes stay the same. Both worlds begin it with what runs and waits on each node in reality, so that no
//     difference between them outlives it;
//   - counted: said of a pod that was created within the period, and whose waiting is in the figures;
//   - carried: said of a pod that was there when the period began;
//   - pinned: said of a pod that is on its real node in both worlds.
package shadow
