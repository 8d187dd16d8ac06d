package inventory

import (
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// GPU is the driver's description of one device: a physical GPU or a MIG instance.
type GPU struct {
	// ID is the UUID, "GPU-…" or "MIG-…".
	ID string
	// Index is NVML's index; Minor numbers the device file /dev/nvidia<Minor>. The two numbers may differ, and both may
	// change when a device comes back after a loss. MIG instances have the Minor of their GPU.
	Index, Minor int
	Model        string
	// Memory in bytes.
	Memory                     int64
	ComputeMajor, ComputeMinor int
	PCIBusID                   string
	// NUMANode is -1 where the platform has none.
	NUMANode int
	// Contexts is the number of MPS clients at once, 0 without a known limit.
	Contexts int
	Links    []v1alpha1.GPULink
	// Parent is the UUID of the GPU that a MIG instance is part of, empty for a GPU. GI and CI number the instance.
	Parent string
	GI, CI int
}

// Sickness says why a device takes no work.
type Sickness struct {
	// Reason is a CamelCase word, Message a sentence for people.
	Reason, Message string
}

// Error returns the reason and the message.
func (s *Sickness) Error() string { return s.Reason + ": " + s.Message }

// Device is a GPU with its slots and its health.
type Device struct {
	GPU
	Slots int
	// Sick is nil for a device that takes work.
	Sick *Sickness
	// Recovering: the device is well again and under watch for a while; Sick keeps the former reason.
	Recovering bool
	// Unmonitored says why the agent would not notice that the device serves no program; nil where it would.
	Unmonitored *Sickness
	// ContextsUsed counts the MPS clients.
	ContextsUsed int
	// Usage is the smoothed measurement; nil before the first.
	Usage *v1alpha1.GPUUsage
	// Tenants are the pods that hold shares of the device, as last published.
	Tenants []v1alpha1.GPUTenant
}

// Shared reports whether shares of the device are served and bounded by MPS: on Volta or newer.
func (d *Device) Shared() bool { return d.ComputeMajor >= 7 }

// EqualSickness reports whether two sicknesses are the same; nil is the same as nil.
func EqualSickness(a, b *Sickness) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// NeedsSharing reports whether the container's share of d is served by MPS.
func NeedsSharing(c vgpu.ContainerAssignment, d *Device) bool {
	return d != nil && len(c.Devices) == 1 && int(c.Share.Slots) < d.Slots && d.Shared()
}

// Find returns the device with an ID, nil where there is none.
func Find(devices []Device, id string) *Device {
	for i := range devices {
		if devices[i].ID == id {
			return &devices[i]
		}
	}
	return nil
}
