// Package computemode keeps the compute mode EXCLUSIVE_PROCESS on devices that serve shares.
//
// It decides which modes to put back: those that this agent or an earlier one has set. Which devices serve shares is told
// by its caller.
package computemode
