// Package placement decides which devices one pod gets.
//
// Fit answers whether a pod can go to a node now, Score how good that would be, Choose the best node and devices of a
// cluster. Policies rank the feasible choices; none of them can make an infeasible one feasible.
package placement
