package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Driver is what the agent asks of NVML. *Library is the one implementation. Callers may use all methods at the same
// time.
type Driver interface {
	// Devices lists the GPUs by index, lost ones included, and then the MIG instances. Devices leaves out GPUs in MIG
	// mode.
	Devices() ([]Device, error)
	// DriverVersion is, for example, "580.95.05".
	DriverVersion() string
	// CUDAVersion is 1000·major + 10·minor of the newest CUDA that the driver runs.
	CUDAVersion() int
	// Health checks one device.
	Health(uuid string) Health
	// Sample measures one device; utilisation of its processes since the last Sample of this device.
	Sample(uuid string) (Sample, error)
	// ComputeMode returns who may make contexts on a device.
	ComputeMode(uuid string) (Mode, error)
	// SetComputeMode changes it to ModeDefault or ModeExclusiveProcess.
	SetComputeMode(uuid string, mode Mode) error
	// Recovery returns the driver's recovery action for a device, and false where the driver gives none.
	Recovery(uuid string) (Action, bool)
	// Watch reports XID errors until the context ends.
	Watch(ctx context.Context, report func(Event)) error
	// Close ends the use of the library. Later calls of the methods fail.
	Close() error
}

var _ Driver = (*Library)(nil)

// ErrNoLibrary is returned by Open when there is no libnvidia-ml.so.1.
var ErrNoLibrary = errors.New("libnvidia-ml.so.1 not found: it comes with the NVIDIA driver; " +
	"install the driver on this node, or mount it into this container and add its directory to LD_LIBRARY_PATH")

// ErrNoDriver is returned by Open when the library is there and no kernel driver answers it.
var ErrNoDriver = errors.New("the NVIDIA kernel driver is not loaded: check `nvidia-smi` on this node")

// reopenEvery is the least time between two openings of the library while a device does not answer. NVML finds its
// devices when it initialises, so it sees a device that comes back only after that (read, not measured). Shorter finds
// it sooner; each opening queries all devices of the node anew and keeps other calls waiting meanwhile.
const reopenEvery = time.Minute

// reopenAtMost bounds the time between two openings, which doubles while a device stays away.
const reopenAtMost = 16 * time.Minute

// errClosed is what methods say after Close, and while the driver does not come back.
var errClosed = errors.New("NVML is not open")

// Library is an open NVML.
type Library struct {
	api nvml.Interface

	// gate: a call of the library holds it for reading, an opening or a closing of the library for writing.
	gate sync.RWMutex
	// wanted makes Watch stay outside of the gate for a moment.
	wanted atomic.Bool
	// down is true after Close, and after a failure to open again: no call may reach the library then.
	down, closed bool
	// generation counts the openings of the library: handles do not outlive one.
	generation int

	mu sync.Mutex
	// opened is the time of the last opening, patience the least time until the next.
	opened      time.Time
	patience    time.Duration
	driver      string
	cudaVersion int
	// known keeps what was at each index when it last answered, so that a lost device still has a name.
	known map[int]place
	// at finds a device by its UUID.
	at map[string]address
	// uncorrected keeps the least known count of uncorrected memory errors of each GPU.
	uncorrected map[string]uint64
	// sampled keeps the time stamp of the newest utilisation sample of each GPU.
	sampled map[string]uint64
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
	l := &Library{
		api: api, opened: time.Now(), patience: reopenEvery, known: map[int]place{}, at: map[string]address{},
		uncorrected: map[string]uint64{}, sampled: map[string]uint64{},
	}
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.driver, l.cudaVersion = driver, cuda
	return nil
}

// enter keeps the library open until leave.
func (l *Library) enter() error {
	l.gate.RLock()
	if l.down {
		l.gate.RUnlock()
		return errClosed
	}
	return nil
}

func (l *Library) leave() { l.gate.RUnlock() }

// exclusiveWait is how long opening and closing wait for calls that are under way.
const exclusiveWait = 2 * time.Second

// exclude keeps all other callers out, until gate.Unlock. It gives up if a call does not come back: a driver that hangs
// for one device may still answer for the others, which a waiting writer would keep out.
func (l *Library) exclude() bool {
	l.wanted.Store(true)
	defer l.wanted.Store(false)
	for deadline := time.Now().Add(exclusiveWait); !l.gate.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// reopen initialises the library anew, unless it did so a short time ago, and says whether handles are new now.
func (l *Library) reopen() bool {
	if !l.due() || !l.exclude() {
		return false
	}
	defer l.gate.Unlock()
	if l.closed || !l.down && l.api.Shutdown() != nvml.SUCCESS {
		return false
	}
	l.generation++
	l.down = l.api.Init() != nvml.SUCCESS
	if l.down {
		return false
	}
	// A driver that answers nothing keeps the versions that it had.
	_ = l.versions()
	return true
}

// due says whether it is time to open the library again, and doubles the time until the next one.
func (l *Library) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.opened) < l.patience {
		return false
	}
	l.opened, l.patience = time.Now(), min(2*l.patience, reopenAtMost)
	return true
}

// calm resets the patience after the library found a device again.
func (l *Library) calm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.patience = reopenEvery
}

// DriverVersion returns the version of the kernel driver.
func (l *Library) DriverVersion() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.driver
}

// CUDAVersion returns 1000·major + 10·minor: 13010 is CUDA 13.1.
func (l *Library) CUDAVersion() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cudaVersion
}

// Close ends the use of NVML. Close fails if a call that is under way does not come back.
func (l *Library) Close() error {
	if !l.exclude() {
		return errors.New("close NVML: a call does not come back")
	}
	defer l.gate.Unlock()
	open := !l.down
	l.down, l.closed = true, true
	if !open {
		return nil
	}
	if ret := l.api.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("close NVML: %s", text(ret))
	}
	return nil
}

// has says whether the driver knows a call. A call that is unknown to the driver ends the process (symbol lookup error,
// status 127). So the package looks up everything younger than the oldest driver that serves CUDA 11.
func (l *Library) has(symbol string) bool { return l.api.Extensions().LookupSymbol(symbol) == nil }

// text names a return code in NVML's constants. text does not call the library, which may be unusable.
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
