package health

import (
	"context"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
)

// Driver is the keeper's view of the GPU driver. Its calls may hang where the driver does.
type Driver interface {
	// GPUs lists the devices, lost ones included as long as the driver knows them.
	GPUs() ([]inventory.GPU, error)
	// Health returns nil where the device takes work, else a *Sickness or any other error.
	Health(id string) error
	// Recovery returns what the driver wants done to the device, RecoveryUnknown where the driver does not say.
	Recovery(id string) Recovery
	// Watch reports XID errors of the present devices until ctx ends (nil) or the driver stops answering.
	Watch(ctx context.Context, report func(XID)) error
}

// Sharing is the keeper's view of MPS.
type Sharing interface {
	// Ensure starts what sharing the device needs, or adopts what already runs.
	Ensure(ctx context.Context, g inventory.GPU) error
	// Look lists the clients of the device. A fault is no error here.
	Look(ctx context.Context, id string) (sharing.Tenancy, error)
	// EndClients ends the GPU work of those of the processes that are clients of the device now, and returns them.
	EndClients(ctx context.Context, id string, pids []int) (ended []int, err error)
	// Recycle replaces what serves the device, and with it every client.
	Recycle(ctx context.Context, g inventory.GPU) error
	// Probe tries as a client whether the device serves new clients: nil, sharing.ErrWedged, ErrFault, ErrUnwatched or another
	// error.
	Probe(ctx context.Context, g inventory.GPU) error
	// Stop ends what serves the device.
	Stop(ctx context.Context, id string) error
}
