// Package resident tells which container has a share of which device, and which container a process belongs to.
//
// It reads assignments and cgroups. What it cannot know it does not guess: a process of the host, or of a pod that the
// node does not know, belongs to no container.
package resident
