// Package cdi keeps the late-bound CDI specs: what a container gets under the name that the kubelet already holds.
//
// The kubelet is told a fresh random name when it allocates slots and passes that name to the container runtime. What
// the name means is written here, just before the container starts, when its assignment is known. One file holds one
// name. A file is replaced as a whole or not at all, and it says whose it is (pod UID, container) and what the pod was
// promised, so that the folder alone is enough to know what every container was given.
//
// Which devices a container gets is decided elsewhere: by the scheduler, and checked by internal/agent/binding.
package cdi
