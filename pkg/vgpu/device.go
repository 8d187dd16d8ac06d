package vgpu

import "strconv"

// DeviceID identifies a device in the whole cluster: the GPU UUID.
type DeviceID string

// Device is one physical GPU or one MIG instance.
type Device struct {
	ID DeviceID
	// Index orders the devices of a node and names them for users: "g0".
	Index int
	// Model is the product name. Devices of one model usually have the same Slots and Memory, but need not.
	Model string
	// Slots is N ≥ 1, the number of equal parts.
	Slots Slots
	// Memory is the device memory that shares may use.
	Memory Bytes
	// Contexts is the number of MPS clients that the device can serve at once; 0 means no limit. The budget counts
	// containers: a container with several CUDA processes uses more than its count.
	Contexts int
	// Healthy devices take new shares. An unhealthy device keeps the shares that it has.
	Healthy bool
	// Links to other devices of the node; a missing entry is the worst link.
	Links []Link
}

// Name is the device's name for users, unique on a node except for MIG instances of one GPU: "g0".
func (d *Device) Name() string { return "g" + strconv.Itoa(d.Index) }

// Shape is what makes devices interchangeable for a request. Whole devices of one container have one shape.
type Shape struct {
	Model  string
	Slots  Slots
	Memory Bytes
}

// Shape returns the device's shape.
func (d *Device) Shape() Shape { return Shape{Model: d.Model, Slots: d.Slots, Memory: d.Memory} }

// Link is the path between two devices of one node.
type Link struct {
	Peer DeviceID
	// Class of the path; greater is closer.
	Class LinkClass
	// Lanes counts the NVLinks of an NVLink path, else 0.
	Lanes int
}

// LinkClass orders the paths between devices; greater is closer.
type LinkClass int

// Classes of paths, in the words of `nvidia-smi topo -m`.
const (
	LinkSYS LinkClass = iota
	LinkNODE
	LinkPHB
	LinkPXB
	LinkPIX
	LinkNVLink
)
