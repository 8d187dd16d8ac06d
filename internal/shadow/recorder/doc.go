// Package recorder tells package shadow the facts of a cluster: what there is, which pods come, where another scheduler binds them,
// when they end. It reads the API server and writes nothing.
//
// Nodes with agents have a GPUNode. The package reads the labels of GPU feature discovery of the other nodes, and names those of which
// it cannot say what a pod gets: nodes with MIG instances, nodes with time-slicing, nodes without labels.
package recorder
