// Package resident knows which container has a share of which device, and which container a process belongs to.
//
// The package reads assignments and cgroups. The package does not guess: a process of the host, or of a pod that the
// node does not know, belongs to no container.
package resident
