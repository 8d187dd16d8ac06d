package v1alpha1

// AssignmentVersion is the version of the Assignment format that this release writes and the only one it reads.
const AssignmentVersion = 1

// Assignment records the devices chosen for a pod. It travels as JSON in the annotation AnnotationAssignment.
//
// +kubebuilder:object:generate=false
type Assignment struct {
	// Version is AssignmentVersion.
	Version int `json:"version"`
	// UID is the pod's metadata.uid: an assignment copied to another pod is refused by the agent.
	UID string `json:"uid"`
	// Node is the pod's spec.nodeName.
	Node string `json:"node"`
	// Containers holds one entry per container that asks for slots, in the pod's order, init containers first.
	Containers []ContainerAssignment `json:"containers"`
}

// ContainerAssignment is the share of one container.
//
// +kubebuilder:object:generate=false
type ContainerAssignment struct {
	// Name of the container.
	Name string `json:"name"`
	// Devices holds the GPU UUIDs, sorted: one for a share of a device, several for whole devices.
	Devices []string `json:"devices"`
	// Slots is the number of slots on each device.
	Slots int32 `json:"slots"`
	// AskedSlots is the number of slots that the container asks for, and that the kubelet counts, where the pod wanted a
	// rate and its share has more: less than Slots on all devices together. It is absent elsewhere. A release that does
	// not know it refuses the assignment.
	AskedSlots int32 `json:"askedSlots,omitempty"`
	// MemoryBytes is the guaranteed device memory on each device.
	MemoryBytes int64 `json:"memoryBytes"`
	// ComputeLimitPercent is the ceiling of SM use on each device, 1 to 100.
	ComputeLimitPercent int32 `json:"computeLimitPercent"`
	// MemoryLimitBytes is the ceiling of device memory on each device, not below MemoryBytes.
	MemoryLimitBytes int64 `json:"memoryLimitBytes"`
}
