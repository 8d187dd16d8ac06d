// Package machine runs the state machine of package reservation in a scheduler, for the plugins GPUGang and GPUPreempt.
//
// The package holds the lock, passes the API's facts on gangs to the state machine, and carries the effects out.
// Package reservation decides which room the scheduler keeps for which gang or pod.
//
// A plugin calls Step with a function that builds an event, or Read with a function that reads the state. The machine
// carries out the effects on devices, and on pods that wait, before it releases the lock, since these must agree with
// the state. The machine notes effects that take the lock of the scheduler's queue, and Flush carries them out.
package machine
