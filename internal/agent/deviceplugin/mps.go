package deviceplugin

import (
	"context"
	"errors"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// mpsSharing is MPS as a Sharing.
type mpsSharing struct{ backend mps.Backend }

// FromMPS returns MPS as the agent's way of sharing devices.
func FromMPS(backend mps.Backend) Sharing { return mpsSharing{backend: backend} }

// daemonOf leaves the daemon's own defaults at the whole device: a client's environment can only lower them, and
// shares that may burst go up to the whole device.
func daemonOf(g GPU) mps.DeviceSpec { return mps.DeviceSpec{UUID: g.ID} }

func (m mpsSharing) Ensure(ctx context.Context, g GPU) error {
	return named(m.backend.Ensure(ctx, daemonOf(g)))
}

func (m mpsSharing) Ready(ctx context.Context, id string) error {
	return named(m.backend.Ready(ctx, id))
}

func (m mpsSharing) Look(ctx context.Context, id string) (Tenancy, error) {
	d, err := m.backend.Look(ctx, id)
	var t Tenancy
	for _, s := range d.Servers {
		t.Clients = append(t.Clients, s.Clients...)
		t.Fault = t.Fault || s.State == mps.Fault
	}
	return t, named(err)
}

func (m mpsSharing) EndClients(ctx context.Context, id string, pids []int) ([]int, error) {
	ended, err := m.backend.EndClients(ctx, id, pids)
	return ended, named(err)
}

func (m mpsSharing) Recycle(ctx context.Context, g GPU) error {
	return named(m.backend.Recycle(ctx, daemonOf(g)))
}

func (m mpsSharing) Probe(ctx context.Context, g GPU) error {
	return named(m.backend.Probe(ctx, daemonOf(g)))
}

func (m mpsSharing) Stop(ctx context.Context, id string) error { return named(m.backend.Stop(ctx, id)) }

func (m mpsSharing) Client(c Client) Surroundings {
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
		{mps.ErrNotRunning, errNotRunning}, {mps.ErrNoAnswer, errNoAnswer}, {mps.ErrFault, errFault},
		{mps.ErrProbeTimeout, errWedged}, {mps.ErrUnwatched, errUnwatched},
	} {
		if errors.Is(err, pair[0]) {
			return &namedError{error: err, name: pair[1]}
		}
	}
	return err
}

// namedError is an error under another name; what it says stays.
type namedError struct {
	error
	name error
}

func (n *namedError) Is(target error) bool { return target == n.name }
func (n *namedError) Unwrap() error        { return n.error }
