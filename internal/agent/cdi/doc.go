// Package cdi keeps the late-bound CDI specs: what a container gets under the name that the kubelet already holds.
//
// The agent gives the kubelet a fresh random name when it allocates slots, and the kubelet passes that name to the
// container runtime. The agent writes the meaning of the name here, just before the container starts, when it knows the
// assignment. The agent replaces a file as a whole or not at all. Each file holds one name and says to which pod UID
// and container it belongs and what the scheduler assigned, so the folder alone shows what every container got.
//
// The scheduler decides which devices a container gets, and internal/agent/binding checks that.
package cdi
