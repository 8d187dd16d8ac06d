package vgpu

// UID identifies a pod.
type UID string

// ContainerKind says when a container of a pod runs.
type ContainerKind int

const (
	// App containers run together.
	App ContainerKind = iota
	// Init containers run one after the other, before the app containers.
	Init
	// Sidecar containers are restartable init containers: each runs from its turn among the init containers to the
	// end of the pod.
	Sidecar
)

// Request is what one pod asks for.
type Request struct {
	UID UID
	// Pod is "namespace/name", for people.
	Pod string
	// Priority decides which holds count: those of a lower priority do not.
	Priority int32
	// Containers that ask for slots, init containers and sidecars first, in the pod's order.
	Containers []ContainerRequest
	// ComputeLimit is the compute that a container may burst to, 0 for its request.
	ComputeLimit MilliGPU
	// MemoryLimit is the device memory per device that a container may burst to, 0 for its request.
	MemoryLimit Bytes
}

// ContainerRequest is what one container asks for.
type ContainerRequest struct {
	Name string
	Kind ContainerKind
	// Slots asked for, ≥ 1.
	Slots Slots
	// Memory asked for, added up over the container's devices; 0 for memory in proportion to the slots.
	Memory Bytes
}

// Share is what a container gets on each of its devices.
type Share struct {
	// Devices is the number of devices: 1 for a share of a device, k/N for whole devices.
	Devices int
	// Slots on each device.
	Slots Slots
	// Memory guaranteed on each device.
	Memory Bytes
	// ComputeLimit and MemoryLimit are the ceilings on each device.
	ComputeLimit MilliGPU
	MemoryLimit  Bytes
}

// Whole reports whether the share takes whole devices of n slots.
func (s Share) Whole(n Slots) bool { return s.Slots == n }
