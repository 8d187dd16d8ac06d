package deviceplugin

import (
	"github.com/tandem-gpu/tandem/internal/agent/computemode"
	"github.com/tandem-gpu/tandem/internal/agent/edit"
	"github.com/tandem-gpu/tandem/internal/agent/health"
	"github.com/tandem-gpu/tandem/internal/agent/telemetry"
)

// Driver is the part of the GPU driver that the agent needs. Its calls may hang where the driver does.
type Driver interface {
	health.Driver
	computemode.Driver
	telemetry.Driver

	// Version of the driver.
	Version() (string, error)
}

// Sharing lets containers share one device and keeps them in their bounds: MPS.
type Sharing interface {
	health.Sharing
	edit.Sharing
}
