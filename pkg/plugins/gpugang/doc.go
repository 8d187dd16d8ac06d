// Package gpugang starts the members of a gang together or not at all: the scheduler plugin GPUGang.
//
// It is a shell around the state machine of package reservation, which decides which room the scheduler keeps for which
// gang and until when. The plugin converts what happens into events: each method of the framework steps the machine
// once, and carries out the effects. Between two steps it gets a plan for all members from package gang. Package
// podgroup knows which pods form a gang, and the plugin GPUShare which devices are free. The plugin decides nothing by
// itself, and evicts only members of a gang that could not be bound whole.
//
// The first member that waits, by rank, is tried on behalf of a gang that has no plan.
package gpugang
