// Package sharing says who a device serves and what a client of it needs. MPS is the one way of sharing.
//
// The package only translates between package mps and the rest of the agent. Each package that uses MPS declares the
// methods that it needs.
package sharing
