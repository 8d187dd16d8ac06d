package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Driver is what the agent asks of NVML. *Library is the one implementation.
type Driver interface {
	// Devices lists the GPUs by index, lost ones included.
	Devices() ([]Device, error)
	// DriverVersion is, for example, "580.95.05".
	DriverVersion() string
	// CUDAVersion is 1000·major + 10·minor of the newest CUDA that the driver runs.
	CUDAVersion() int
	// Health asks one device.
	Health(uuid string) Health
	// Watch reports XID errors until the context ends.
	Watch(ctx context.Context, report func(Event)) error
	// Close ends the use of the library; no other method may be called after it.
	Close() error
}

var _ Driver = (*Library)(nil)

// ErrNoLibrary is returned by Open when there is no libnvidia-ml.so.1.
var ErrNoLibrary = errors.New("libnvidia-ml.so.1 not found: it comes with the NVIDIA driver; " +
	"install the driver on this node, or mount it into this container and add its directory to LD_LIBRARY_PATH")

// ErrNoDriver is returned by Open when the library is there and no kernel driver answers it.
var ErrNoDriver = errors.New("the NVIDIA kernel driver is not loaded: check `nvidia-smi` on this node")

// Library is an open NVML.
type Library struct {
	api         nvml.Interface
	driver      string
	cudaVersion int

	mu sync.Mutex
	// known keeps what each index was when it last answered, so that a lost device still has a name.
	known map[int]Device
}

// Open loads and initialises NVML.
func Open() (*Library, error) { return open(nvml.New()) }

// open takes the interface, so that go-nvml's mocks can stand in.
func open(api nvml.Interface) (*Library, error) {
	switch ret := api.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("open NVML: %w", ErrNoLibrary)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("open NVML: %w", ErrNoDriver)
	default:
		return nil, fmt.Errorf("open NVML: initialise: %s", text(ret))
	}
	l := &Library{api: api, known: map[int]Device{}}
	if err := l.versions(); err != nil {
		return nil, errors.Join(fmt.Errorf("open NVML: %w", err), l.Close())
	}
	return l, nil
}

func (l *Library) versions() error {
	driver, ret := l.api.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("read driver version: %s", text(ret))
	}
	cuda, ret := l.api.SystemGetCudaDriverVersion()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("read CUDA version: %s", text(ret))
	}
	l.driver, l.cudaVersion = driver, cuda
	return nil
}

// DriverVersion returns the version of the kernel driver.
func (l *Library) DriverVersion() string { return l.driver }

// CUDAVersion returns 1000·major + 10·minor: 13010 is CUDA 13.1.
func (l *Library) CUDAVersion() int { return l.cudaVersion }

// Close ends the use of NVML.
func (l *Library) Close() error {
	if ret := l.api.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("close NVML: %s", text(ret))
	}
	return nil
}

// has says whether the driver knows a call. Calling one that it does not know ends the process (symbol lookup error,
// status 127), so everything younger than the oldest driver that serves CUDA 11 is asked for first.
func (l *Library) has(symbol string) bool { return l.api.Extensions().LookupSymbol(symbol) == nil }

// text names a return code in NVML's constants. It does not ask the library, which may not be usable.
func text(ret nvml.Return) string {
	names := map[nvml.Return]string{
		nvml.ERROR_UNINITIALIZED:           "not initialised",
		nvml.ERROR_INVALID_ARGUMENT:        "invalid argument",
		nvml.ERROR_NOT_SUPPORTED:           "not supported",
		nvml.ERROR_NO_PERMISSION:           "no permission",
		nvml.ERROR_NOT_FOUND:               "not found",
		nvml.ERROR_DRIVER_NOT_LOADED:       "driver not loaded",
		nvml.ERROR_TIMEOUT:                 "timeout",
		nvml.ERROR_IRQ_ISSUE:               "interrupt problem",
		nvml.ERROR_GPU_IS_LOST:             "GPU is lost",
		nvml.ERROR_RESET_REQUIRED:          "GPU requires a reset",
		nvml.ERROR_OPERATING_SYSTEM:        "blocked by the operating system or a cgroup",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "library and kernel driver have different versions",
		nvml.ERROR_IN_USE:                  "in use",
		nvml.ERROR_MEMORY:                  "insufficient memory",
		nvml.ERROR_UNKNOWN:                 "unknown error",
	}
	if name, ok := names[ret]; ok {
		return name
	}
	return fmt.Sprintf("NVML error %d", int(ret))
}
