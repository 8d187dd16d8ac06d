package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// GPU is what the driver tells about one device.
type GPU struct {
	// ID is the UUID, "GPU-…".
	ID string
	// Index is NVML's index; Minor numbers the device file /dev/nvidia<Minor>. They may differ.
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
}

// Driver is the part of the GPU driver that the agent needs.
type Driver interface {
	// GPUs lists the devices.
	GPUs() ([]GPU, error)
	// Version of the driver.
	Version() (string, error)
	// Health returns nil where the device takes work, else a *Sickness or any other error.
	Health(id string) error
}

// Sharing lets containers share one device and keeps them in their bounds: MPS.
type Sharing interface {
	// Ensure starts what sharing the device needs, or adopts what already runs.
	Ensure(ctx context.Context, g GPU) error
	// Ready returns nil where a new client of the device can be served.
	Ready(ctx context.Context, id string) error
	// Client returns what a container needs to use its share of the device.
	Client(c Client) Surroundings
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
	// Sick is nil for a healthy device.
	Sick *Sickness
}

// shared reports whether shares of the device are served and bounded by MPS: on Volta or newer.
func (d *device) shared() bool { return d.ComputeMajor >= 7 }

// inventory holds the devices and tells when one changes.
type inventory struct {
	mu      sync.Mutex
	devices []device
	changed chan struct{}
}

func newInventory(gpus []GPU, c Config) *inventory {
	inv := &inventory{changed: make(chan struct{})}
	for _, g := range gpus {
		inv.devices = append(inv.devices, device{GPU: g, Slots: c.slots(g.Model)})
	}
	slices.SortFunc(inv.devices, func(a, b device) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	return inv
}

// snapshot returns the devices by index and a channel that is closed at the next change. The caller owns the slice.
func (inv *inventory) snapshot() ([]device, <-chan struct{}) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return slices.Clone(inv.devices), inv.changed
}

// setHealth records the health of a device and reports whether that is news.
func (inv *inventory) setHealth(id string, sick *Sickness) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for i := range inv.devices {
		d := &inv.devices[i]
		if d.ID != id || equalSickness(d.Sick, sick) {
			continue
		}
		d.Sick = sick
		close(inv.changed)
		inv.changed = make(chan struct{})
		return true
	}
	return false
}

func equalSickness(a, b *Sickness) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
