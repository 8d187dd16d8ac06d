// Package victims reads what the Kubernetes objects of pods mean for an eviction.
//
// It decides which pods the arguments of the plugin guard, which PodDisruptionBudgets an eviction takes from, how long a
// pod may take to end, and how much work is lost with it. Package preemption chooses the victims from that, and the
// plugin gpupreempt evicts them. Every function is pure: the caller gives the time.
package victims
