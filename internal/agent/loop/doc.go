// Package loop holds the common parts of the agent's loops: a pause that ends with the agent, a question to a driver
// that may hang, and the pulse that shows that a loop runs.
//
// The package decides when a loop counts as stuck.
package loop
