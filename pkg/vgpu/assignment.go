package vgpu

// Assignment records the devices chosen for one pod.
type Assignment struct {
	UID UID
	// Pod is "namespace/name", for users.
	Pod  string
	Node string
	// Containers that hold shares, in the order of Request.Containers.
	Containers []ContainerAssignment
	// Tenancy is what the pod's neighbours need to know of it. The record in the Binding does not have it; the reader
	// of the record sets it from the pod.
	Tenancy
}

// ContainerAssignment is the share of one container with its devices.
type ContainerAssignment struct {
	Name string
	Kind ContainerKind
	// Devices, sorted; len(Devices) == Share.Devices.
	Devices []DeviceID
	Share   Share
	// Asked is the slots of the container's request, where a variant gives it more; else 0. The kubelet counts these.
	Asked Slots
}

// Hold keeps devices for a pod before its bind.
type Hold struct {
	Assignment
	// Priority of the pod: a hold counts for pods of the same or a lower priority, never for its own pod.
	Priority int32
	// Until is the expected Unix time in seconds at which all present users of the devices have ended, 0 for an unknown
	// time. A pod that ends by then may use the devices meanwhile.
	Until int64
}
