// Package computemode keeps the compute mode EXCLUSIVE_PROCESS on devices that serve shares.
//
// The package puts back the modes that this agent or an earlier one has set. Its caller knows which devices serve
// shares.
package computemode
