// Package placement decides which devices one pod gets.
//
// Fit answers whether a pod can go to a node now, Score how good that would be. Choose returns the best node and
// devices of a cluster. Policies rank the feasible choices; no policy makes an infeasible choice feasible. The caller
// books the choice. Package gang decides for several pods at once.
package placement
