// Package loop holds what the loops of the agent have in common: a pause that ends with the agent, a question to a driver
// that may hang, and the pulse by which a loop shows that it turns.
//
// It decides when a loop counts as stuck. What a loop does is the business of its own package.
package loop
