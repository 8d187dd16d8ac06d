// Package worker is a worker of a training: it joins, computes tasks until it is to leave or the training is over, and tells how
// fast it is.
//
// A worker is to leave when its process is (SIGTERM), or when its pod has the notice of its eviction. It finishes its task and
// leaves between two steps. After a notice it waits for the signal, and joins again when the notice is taken back. A worker that
// loses its connection joins again as a new one.
package worker
