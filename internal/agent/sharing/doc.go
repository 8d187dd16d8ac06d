// Package sharing says who a device serves and what a client of it needs. MPS is the one way of sharing.
//
// It translates between package mps and the rest of the agent and decides nothing. Each package that asks MPS declares
// the questions that it asks.
package sharing
