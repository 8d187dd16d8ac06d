// Package podlist makes a list of jobs, which the simulator plays, out of the pods of a real cluster.
//
// It reads what the API gives, and counts what it leaves out or changes, with the reason. It does not ask the API, and it does not know
// nodes: they are for the scenario to describe.
package podlist
