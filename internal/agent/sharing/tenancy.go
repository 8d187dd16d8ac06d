package sharing

import (
	"errors"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
)

// Errors of what serves the shares of a device.
var (
	ErrNotRunning = errors.New("the MPS control daemon does not run")
	ErrNoAnswer   = errors.New("the MPS control daemon does not answer")
	ErrFault      = errors.New("the MPS server has a fault")
	ErrWedged     = errors.New("the MPS server lets new clients wait for ever")
	ErrUnwatched  = errors.New("nothing can be tried as a client here")
)

// Tenancy is who a device serves.
type Tenancy struct {
	// Clients are the PIDs of all clients, as the host numbers them.
	Clients []int
	// Fault: a server met a fatal fault and refuses new clients.
	Fault bool
}

// Client is a container's share of one device.
type Client struct {
	Device string
	// ComputeLimitPercent is the part of the SMs that the container may use at most.
	ComputeLimitPercent int
	// MemoryLimit in bytes; each process of the container may allocate as much.
	MemoryLimit int64
}

// Surroundings is what a container needs beside the device files.
type Surroundings struct {
	Env    []string
	Mounts []cdi.Mount
}
