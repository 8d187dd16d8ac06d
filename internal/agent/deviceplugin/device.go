package deviceplugin

import (
	"context"
	"errors"

	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// GPU is what the driver tells about one device: a physical GPU or a MIG instance.
type GPU struct {
	// ID is the UUID, "GPU-…" or "MIG-…".
	ID string
	// Index is NVML's index; Minor numbers the device file /dev/nvidia<Minor>. They may differ, and both may change
	// when a device comes back after it was lost. MIG instances have the Minor of their GPU.
	Index, Minor int
	Model        string
	// Memory in bytes.
	Memory                     int64
	ComputeMajor, ComputeMinor int
	PCIBusID                   string
	// NUMANode is -1 where the platform tells none.
	NUMANode int
	// Contexts is the number of MPS clients at once, 0 when no limit is known.
	Contexts int
	Links    []v1alpha1.GPULink
	// Parent is the UUID of the GPU that a MIG instance is part of, empty for a GPU. GI and CI number the instance.
	Parent string
	GI, CI int
}

// Driver is the part of the GPU driver that the agent needs. Its calls may hang where the driver does.
type Driver interface {
	// GPUs lists the devices, lost ones included as long as the driver knows them.
	GPUs() ([]GPU, error)
	// Version of the driver.
	Version() (string, error)
	// Health returns nil where the device takes work, else a *Sickness or any other error.
	Health(id string) error
	// Recovery returns what the driver wants done to the device, recoveryUnknown where it does not tell.
	Recovery(id string) recovery
	// Watch reports XID errors of the devices that are there when it is called, until ctx ends (nil) or the driver stops
	// answering.
	Watch(ctx context.Context, report func(XID)) error
	// Exclusive reports whether the compute mode of a device is EXCLUSIVE_PROCESS, and an error where it is neither that
	// nor DEFAULT.
	Exclusive(id string) (bool, error)
	// SetExclusive sets the compute mode EXCLUSIVE_PROCESS, or DEFAULT.
	SetExclusive(id string, on bool) error
	// Sample measures the use of a device; that of its processes since the last Sample.
	Sample(id string) (nvml.Sample, error)
}

// XID is an error that the driver logged.
type XID struct {
	// Device is the UUID.
	Device string
	Number uint64
	Class  xidClass
	// Label is NVIDIA's class in a word, for people.
	Label string
	// More is how many equal errors came at the same time, beside this one.
	More int
}

// Sharing lets containers share one device and keeps them in their bounds: MPS.
type Sharing interface {
	// Ensure starts what sharing the device needs, or adopts what already runs.
	Ensure(ctx context.Context, g GPU) error
	// Ready returns nil where a new client of the device can be served.
	Ready(ctx context.Context, id string) error
	// Look asks who is served. Its errors are those of Ready, but a fault is no error here.
	Look(ctx context.Context, id string) (Tenancy, error)
	// EndClients ends the GPU work of those of the processes that are clients of the device now, and returns them.
	EndClients(ctx context.Context, id string, pids []int) (ended []int, err error)
	// Recycle replaces what serves the device, and with it every client.
	Recycle(ctx context.Context, g GPU) error
	// Probe tries as a client whether the device serves new clients: nil, errWedged, errFault, errUnwatched or another error.
	Probe(ctx context.Context, g GPU) error
	// Stop ends what serves the device.
	Stop(ctx context.Context, id string) error
	// Client returns what a container needs to use its share of the device.
	Client(c Client) Surroundings
}

// Errors of Sharing.
var (
	errNotRunning = errors.New("the MPS control daemon does not run")
	errNoAnswer   = errors.New("the MPS control daemon does not answer")
	errFault      = errors.New("the MPS server has a fault")
	errWedged     = errors.New("the MPS server lets new clients wait for ever")
	errUnwatched  = errors.New("nothing can be tried as a client here")
)

// Tenancy is who a device serves.
type Tenancy struct {
	// Clients are the PIDs of all clients, as the host numbers them.
	Clients []int
	// Fault: a server met a fatal fault and refuses new clients.
	Fault bool
}

// Client is a container's share of one device, for Sharing.
type Client struct {
	Device string
	// Index is the device's index among those that the container sees.
	ComputeLimitPercent int
	MemoryLimit         int64
}

// Sickness says why a device takes no work.
type Sickness struct {
	// Reason is a CamelCase word, Message a sentence for people.
	Reason, Message string
}

func (s *Sickness) Error() string { return s.Reason + ": " + s.Message }

// reasonLost is the Reason of a device that the driver no longer answers for.
const reasonLost = "DeviceLost"

// sickness gives an error of Driver.Health its words; nil stays nil.
func sickness(err error) *Sickness {
	var s *Sickness
	switch {
	case err == nil:
		return nil
	case errors.As(err, &s):
		return s
	}
	return &Sickness{Reason: reasonLost, Message: err.Error()}
}

// device is a GPU with its slots and its health.
type device struct {
	GPU
	Slots int
	// Sick is nil for a device that takes work.
	Sick *Sickness
	// Recovering: the device is well again and is watched for a while; Sick says what it had.
	Recovering bool
	// Unmonitored says why nobody would notice that the device serves no program; nil where somebody would.
	Unmonitored *Sickness
	// ContextsUsed counts the MPS clients.
	ContextsUsed int
	// Usage is what was measured, smoothed; nil before.
	Usage *v1alpha1.GPUUsage
	// Tenants are the pods that hold shares of the device, as last published.
	Tenants []v1alpha1.GPUTenant
}

// shared reports whether shares of the device are served and bounded by MPS: on Volta or newer.
func (d *device) shared() bool { return d.ComputeMajor >= 7 }

func equalSickness(a, b *Sickness) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
