package deviceplugin

import (
	"context"

	"github.com/tandem-gpu/tandem/internal/cdi"
	"github.com/tandem-gpu/tandem/internal/mps"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// mpsSharing is MPS as a Sharing.
type mpsSharing struct{ backend mps.Backend }

// FromMPS returns MPS as the agent's way of sharing devices.
func FromMPS(backend mps.Backend) Sharing { return mpsSharing{backend: backend} }

// Ensure leaves the daemon's own defaults at the whole device: a client's environment can only lower them, and shares
// that may burst go up to the whole device.
func (m mpsSharing) Ensure(ctx context.Context, g GPU) error {
	return m.backend.Ensure(ctx, mps.DeviceSpec{UUID: g.ID})
}

func (m mpsSharing) Ready(ctx context.Context, id string) error { return m.backend.Ready(ctx, id) }

func (m mpsSharing) Client(c Client) Surroundings {
	env, mounts := m.backend.Environment(mps.ClientSpec{UUID: c.Device, Percent: c.ComputeLimitPercent, Memory: vgpu.Bytes(c.MemoryLimit)})
	s := Surroundings{Env: env}
	for _, mount := range mounts {
		s.Mounts = append(s.Mounts, cdi.Mount{Host: mount.HostPath, Container: mount.ContainerPath, Options: []string{"rbind", "rw"}})
	}
	return s
}
