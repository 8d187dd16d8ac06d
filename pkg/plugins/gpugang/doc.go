// Package gpugang starts the members of a gang together or not at all: the scheduler plugin GPUGang.
//
// It converts between the scheduler framework and core: PreFilter of the first member asks package gang for a plan for all of
// them and keeps their room, Filter holds each to its place, Permit lets them go once enough are there. Which pods form a
// gang is told by package podgroup, which devices are free by the plugin GPUShare. It decides nothing by itself about where
// a gang goes, and evicts nobody but the members of a gang that could not be bound whole.
//
// The words it adds to the glossary:
//
//   - plan: the places of the members, kept by holds until they are bound;
//   - leader: the member that is tried on behalf of a gang that has no plan, the first by rank that waits;
//   - let go: enough members are reserved, and all may bind. Before that, what goes wrong for one ends the plan; after it,
//     the place of a member whose bind fails is kept, and the bind tried again;
//   - half-bound: fewer members than the least are bound of a gang that never had enough. It is released when the placement
//     deadline passes: its bound members are evicted;
//   - drain: room that is kept for the first gang that waits while its present owners end.
package gpugang
