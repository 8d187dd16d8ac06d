package mps

import (
	"context"
	"errors"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Backend is one way to run MPS. The agent knows nothing else of it.
type Backend interface {
	// Ensure makes sure that the device's daemon runs with the wanted defaults: it adopts the one that answers, else it
	// starts one. Calling it again changes nothing. It returns nil only where Ready would, and Ready's errors.
	Ensure(ctx context.Context, spec DeviceSpec) error
	// Ready returns nil if the daemon answers and none of its servers has a fault; else ErrNotRunning, ErrNoAnswer or
	// ErrFault, wrapped.
	Ready(ctx context.Context, uuid string) error
	// Environment says what a client of the device needs. It asks nobody.
	Environment(spec ClientSpec) (env []string, mounts []Mount)
	// Stop ends the daemon and its servers, and with them every client. A daemon that does not run is stopped.
	Stop(ctx context.Context, uuid string) error
}

// DeviceSpec is what the daemon of a device should be.
type DeviceSpec struct {
	// UUID of the GPU.
	UUID string
	// Percent is the default share of the SMs for a client that brings no limit, 1 to 100; 0 leaves it at 100.
	Percent int
	// Memory is the default limit for a client that brings none; 0 is no limit.
	Memory vgpu.Bytes
}

// ClientSpec is the share of one client.
type ClientSpec struct {
	// UUID of the GPU.
	UUID string
	// Percent of the SMs that the client may use at most.
	Percent int
	// Memory that each process of the client may allocate; 0 is no limit.
	Memory vgpu.Bytes
}

// Mount is a directory of the host that the container sees.
type Mount struct {
	HostPath, ContainerPath string
}

// Errors of a daemon.
var (
	// ErrNotRunning: nothing listens in the pipe directory.
	ErrNotRunning = errors.New("the MPS control daemon does not run")
	// ErrNoAnswer: something is there, and a command was not answered in time.
	ErrNoAnswer = errors.New("the MPS control daemon does not answer")
	// ErrFault: a server met a fatal fault and refuses new clients until the old ones are gone.
	ErrFault = errors.New("the MPS server has a fault")
	// ErrNoBinary: the control program is not installed.
	ErrNoBinary = errors.New("nvidia-cuda-mps-control not found in PATH: it comes with the NVIDIA driver " +
		"(Debian, Ubuntu: nvidia-compute-utils); install it, or mount it into this container")
)

// Names of the variables that make a program a client with a limit.
const (
	PipeVariable    = "CUDA_MPS_PIPE_DIRECTORY"
	LogVariable     = "CUDA_MPS_LOG_DIRECTORY"
	PercentVariable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	MemoryVariable  = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	visibleVariable = "CUDA_VISIBLE_DEVICES"
)
