package sharing

import (
	"context"
	"errors"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// MPS shares devices by MPS.
type MPS struct{ backend mps.Backend }

// FromMPS returns MPS as the agent's way of sharing devices.
func FromMPS(backend mps.Backend) MPS { return MPS{backend: backend} }

// daemonOf leaves the daemon's own defaults at the whole device: a client's environment can only lower them, and
// shares that may burst go up to the whole device.
func daemonOf(g inventory.GPU) mps.DeviceSpec { return mps.DeviceSpec{UUID: g.ID} }

// Ensure starts the daemon of a device, or adopts the one that runs.
func (m MPS) Ensure(ctx context.Context, g inventory.GPU) error {
	return named(m.backend.Ensure(ctx, daemonOf(g)))
}

// Look lists the clients of the daemon. A fault is no error here.
func (m MPS) Look(ctx context.Context, id string) (Tenancy, error) {
	d, err := m.backend.Look(ctx, id)
	var t Tenancy
	for _, s := range d.Servers {
		t.Clients = append(t.Clients, s.Clients...)
		t.Fault = t.Fault || s.State == mps.Fault
	}
	return t, named(err)
}

// EndClients ends the GPU work of those of the processes that are clients of the device now, and returns them.
func (m MPS) EndClients(ctx context.Context, id string, pids []int) ([]int, error) {
	ended, err := m.backend.EndClients(ctx, id, pids)
	return ended, named(err)
}

// Recycle replaces the daemon and its servers, and with them every client.
func (m MPS) Recycle(ctx context.Context, g inventory.GPU) error {
	return named(m.backend.Recycle(ctx, daemonOf(g)))
}

// Probe tries as a client whether the device serves new clients.
func (m MPS) Probe(ctx context.Context, g inventory.GPU) error {
	return named(m.backend.Probe(ctx, daemonOf(g)))
}

// Stop ends the daemon of a device.
func (m MPS) Stop(ctx context.Context, id string) error { return named(m.backend.Stop(ctx, id)) }

// Client returns what a container needs to use its share of the device.
func (m MPS) Client(c Client) Surroundings {
	env, mounts := m.backend.Environment(mps.ClientSpec{UUID: c.Device, Percent: c.ComputeLimitPercent, Memory: vgpu.Bytes(c.MemoryLimit)})
	s := Surroundings{Env: env}
	for _, mount := range mounts {
		access := "rw"
		if mount.ReadOnly {
			access = "ro"
		}
		s.Mounts = append(s.Mounts, cdi.Mount{Host: mount.HostPath, Container: mount.ContainerPath, Options: []string{"rbind", access}})
	}
	return s
}

// named gives the errors of MPS the names that the agent knows.
func named(err error) error {
	for _, pair := range [][2]error{
		{mps.ErrNotRunning, ErrNotRunning}, {mps.ErrNoAnswer, ErrNoAnswer}, {mps.ErrFault, ErrFault},
		{mps.ErrProbeTimeout, ErrWedged}, {mps.ErrUnwatched, ErrUnwatched},
	} {
		if errors.Is(err, pair[0]) {
			return &namedError{error: err, name: pair[1]}
		}
	}
	return err
}

// namedError is an error under another name; its text stays.
type namedError struct {
	error
	name error
}

func (n *namedError) Is(target error) bool { return target == n.name }
func (n *namedError) Unwrap() error        { return n.error }
