// Package model is the network that the trainer trains: its parameters, its data, and the gradient of a slice of a batch.
//
// The network is a small classifier with two hidden layers. Its data are drawn from the seed: each sample is the pattern of
// its class with noise, so any worker can make any sample, and no file has to be there. Each sample is used once.
//
// A gradient is a vector of whole numbers, in units of 1/Unit. The sum of whole numbers does not depend on the order, so the
// sum of all slices is the same to the last bit however the slices are shared among workers. A number beyond the bounds is
// clipped, as trainers often clip gradients; the bounds are so wide that no training that works comes near them.
package model
