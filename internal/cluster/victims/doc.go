// Package victims reads what the Kubernetes objects of pods mean for an eviction.
//
// The package decides which pods the plugin's arguments guard, and from which PodDisruptionBudgets an eviction takes.
// It also decides how long a pod may take to end, and how much work is lost with it. Package preemption chooses the
// victims from that, and the plugin gpupreempt evicts them. Every function is pure: the caller gives the time.
package victims
