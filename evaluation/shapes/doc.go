// Package shapes draws clusters and workloads that no policy was tuned for, to compare policies on.
//
// A shape is one cluster with the kinds of pods that arrive there; its number decides both. Shapes belong to families, each of which makes one
// thing hard: a resource that runs out first, rare large pods, a mix that changes. Seeds draw the order and the times of the pods.
package shapes
