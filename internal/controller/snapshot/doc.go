// Package snapshot makes the model of a cluster from what the API says of it: the nodes with their devices, and who uses
// them.
//
// The model is what the scheduler sees without its own memory: holds and reservations are not in it. The package writes
// nothing.
package snapshot
