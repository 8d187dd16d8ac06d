// Package group decides what the members of a training do: which worker computes which slices of which step, when the
// parameter servers apply a step, and which server holds which parameters.
//
// Each step has one global batch of a fixed size. The batch consists of a fixed number of slices, and the gradient of a slice
// depends on the parameters and on the slice alone. The workers that are present share the slices of a step: each gets a
// task, which is some slices of one step. A worker adds the gradients of its task, sends the sum to all servers under the
// task's number, and then reports the task as done. When the tasks that are done hold each slice of the step once, all
// servers apply exactly these tasks. So the result of a step does not depend on the number of workers.
//
// A worker that joins gets its first task when slices are free, which is at the next step unless another worker was lost. A
// worker that wants to leave finishes its task and gets no other one. When a worker is lost, the slices of its task are free
// again, and other workers compute them under a new number. The servers may have the old task, in part or as a whole, and
// never apply it, because its number is on no list.
//
// The layout says which server holds which range of the parameters. It changes between two steps. First the servers of the
// next layout fetch what they lack, then all of them adopt the layout, and then a server that wants to leave may leave. A
// server that is lost takes its parameters with it, and the training is broken. The loss of a server that holds nothing yet
// costs nothing.
//
// State has no clock, no lock and no I/O: an event goes in, effects come out, and the same events have the same effects.
package group
