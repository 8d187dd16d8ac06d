// Package machine runs the state machine of package reservation in a scheduler, for the plugins GPUGang and GPUPreempt.
//
// It holds the lock, tells the state machine what the API says of gangs, and carries the effects out. It decides nothing: package
// reservation decides which room is kept for which gang or pod.
//
// A plugin calls Step with a function that builds an event, or Read with a function that asks. The machine carries out the effects on
// devices, and on pods that wait, before it releases the lock, since these must agree with the state. What takes the lock of the
// scheduler's queue is noted, and Flush does it.
package machine
