// Package lifetime predicts how long a running pod still runs, as a survival curve and not as one number.
//
// A Learner reads how long pods ran that ended, and keeps for each group of pods alike (of one user, of one user and size, …) two
// histograms of bounded size over the logarithm of time: one of lengths at which pods ended, one of lengths at which they were stopped
// before their end. The hazard of a group in a bin is the part of the pods that reached the bin and ended in it. Few pods say little, so the
// hazard of a group is drawn to that of the coarser group before it, as the mean of a Beta prior does. The length that a pod declares, and
// the one that its progress projects, count as much as such words were right before. Progress turns what one pod says of its progress into
// these lengths.
//
// The package does not know which pods run, and it decides nothing by what it predicts.
package lifetime
