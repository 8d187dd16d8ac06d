package mps

import (
	"context"
	"errors"
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Backend is one way to run MPS. The agent knows nothing else of it.
type Backend interface {
	// Ensure makes sure that the device's daemon runs with the wanted defaults: it adopts the one that answers, else it
	// starts one. Calling it again changes nothing. Ensure returns nil only where Ready would, and Ready's errors.
	Ensure(ctx context.Context, spec DeviceSpec) error
	// Ready returns nil if the daemon answers and none of its servers has a fault; else ErrNotRunning, ErrNoAnswer or
	// ErrFault, wrapped.
	Ready(ctx context.Context, uuid string) error
	// Look lists the servers of the daemon, their states and their clients. Its errors are Ready's, but a fault is a
	// state here and no error.
	Look(ctx context.Context, uuid string) (Daemon, error)
	// EndClients ends the GPU work of those of the processes that are clients of the device now; the others are none of
	// its business. EndClients returns those whose work it ended, also with an error, which is about the rest. The
	// processes live on and see an error at their next CUDA call. EndClients works on a server with a fault too.
	EndClients(ctx context.Context, uuid string, pids []int) (ended []int, err error)
	// Recycle replaces the daemon and its servers, and with them ends the GPU work of every client. It sends SIGKILL to
	// what does not quit in time and provably belongs to the device's pipe directory. Then it does what Ensure does.
	Recycle(ctx context.Context, spec DeviceSpec) error
	// Probe tries as a client of its own whether the device serves new clients. Probe returns nil where the device
	// serves, also where it is only full or busy; else ErrProbeTimeout, ErrFault, ErrUnwatched (ErrNoCUDA is one) or
	// another error, wrapped.
	Probe(ctx context.Context, spec DeviceSpec) error
	// Environment says what a client of the device needs. The answer needs no daemon.
	Environment(spec ClientSpec) (env []string, mounts []Mount)
	// Stop makes the daemon quit and waits until it is gone. MPS lets clients end by themselves before, so with clients
	// this is ErrNoAnswer in the end. Stop returns nil for a daemon that does not run.
	Stop(ctx context.Context, uuid string) error
}

// DeviceSpec is what the daemon of a device should be.
type DeviceSpec struct {
	// UUID of the GPU or of the MIG instance.
	UUID string
	// Percent is the default share of the SMs for a client that brings no limit, 1 to 100; 0 leaves it at 100.
	Percent int
	// Memory is the default limit for a client that brings none; 0 is no limit.
	Memory vgpu.Bytes
}

// ClientSpec is the share of one client.
type ClientSpec struct {
	// UUID of the GPU or of the MIG instance.
	UUID string
	// Percent of the SMs that the client may use at most.
	Percent int
	// Memory that each process of the client may allocate; 0 is no limit.
	Memory vgpu.Bytes
}

// Mount is a directory of the host that the container sees.
type Mount struct {
	HostPath, ContainerPath string
	// ReadOnly mounts let a program connect to the sockets in them and change nothing.
	ReadOnly bool
}

// Errors of a daemon.
var (
	// ErrNotRunning: nothing listens in the pipe directory.
	ErrNotRunning = errors.New("the MPS control daemon does not run")
	// ErrNoAnswer: there is a daemon, and it did not answer a command in time.
	ErrNoAnswer = errors.New("the MPS control daemon does not answer")
	// ErrFault: a server met a fatal fault and refuses new clients until the old ones are gone.
	ErrFault = errors.New("the MPS server has a fault")
	// ErrNoBinary: the control program is missing.
	ErrNoBinary = errors.New("nvidia-cuda-mps-control not found in PATH: it comes with the NVIDIA driver " +
		"(Debian, Ubuntu: nvidia-compute-utils); install it, or mount it into this container")
	// ErrNoHost: the MPS host, which should start the daemon, does not answer.
	ErrNoHost = errors.New("the MPS host does not answer")
	// ErrProbeTimeout: a new client waited for the server until its time was up. The server hangs.
	ErrProbeTimeout = errors.New("the MPS server does not let new clients in")
	// ErrUnwatched: the agent cannot try the server, which says nothing about the device.
	ErrUnwatched = errors.New("the MPS server cannot be tried from here")
	// ErrNoCUDA: there is no CUDA driver library in this container or on this host.
	ErrNoCUDA = fmt.Errorf("%w: libcuda.so.1 not found", ErrUnwatched)
)

// Names of the variables that make a program a client with a limit.
const (
	PipeVariable    = "CUDA_MPS_PIPE_DIRECTORY"
	LogVariable     = "CUDA_MPS_LOG_DIRECTORY"
	PercentVariable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	MemoryVariable  = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	visibleVariable = "CUDA_VISIBLE_DEVICES"
)
