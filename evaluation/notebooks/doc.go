// Package notebooks plays notebooks that compute in bursts, on whole GPUs and on shares of GPUs, and compares how long they take.
//
// A notebook is idle, computes, is idle again. If it has a whole GPU, the next notebook waits until it is done. If it has a share, it may use
// all that the others leave while they are idle (a request of a part, a limit of the whole device), and bursts at the same time slow each other
// down as package interference predicts.
package notebooks
