package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// ContainerPipeDirectory is where a container sees the pipe directory of its device. The path is MPS's own default,
	// so a program that loses its environment still finds the daemon: a client that finds none runs without MPS and
	// without any limit.
	ContainerPipeDirectory = "/tmp/nvidia-mps"
	// containerSharedMemory is the folder in which MPS servers and clients share memory. Its path is part of the C
	// library.
	containerSharedMemory = "/dev/shm"
)

// Options of a V2.
type Options struct {
	// Dir holds <GPU UUID>/{pipe,log} for each device. The path must be the same on the host.
	Dir string
	// Timeout for one command, and for the start of a daemon; 10 seconds unless set. Shorter mistakes a busy daemon for
	// a hanging one; longer delays the moment when the agent notices a hanging device.
	Timeout time.Duration
	// MultiUser lets MPS serve clients of all users at once. Without it a daemon serves one user at a time: a client of
	// another user waits, for hours if need be, until the clients of the first are gone. With it all clients are the
	// root user's to MPS, and the agent has to be root. Source: NVIDIA MPS documentation, -multiuser-server; Volta or
	// newer. An adopted daemon keeps the mode of its start.
	MultiUser bool
	// Launcher is the socket of the MPS host (Host) that starts the daemons, so that they outlive the agent's container.
	// Empty: they are started by this process.
	Launcher string
	// SharedMemory is the folder of the host that the daemons see as /dev/shm. Clients get it as theirs, in place of
	// the host's IPC namespace. All devices of the node share it, since the daemons of one container see one /dev/shm,
	// and a tenant can read what the others leave there. Empty: clients keep their own.
	SharedMemory string
	// Canary is the command line of the CUDA program that Probe runs; this executable with the word canary unless set.
	Canary []string
	// CanaryTimeout is how long Probe waits for it, 5 seconds unless set. Shorter mistakes a busy server for a wedged
	// one: a first client starts the server, which takes seconds where the driver keeps no persistent state.
	CanaryTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.CanaryTimeout == 0 {
		o.CanaryTimeout = 5 * time.Second
	}
	return o
}

// V2 runs MPS as drivers before r615 know it: the server has one default, and the client's environment can only lower
// it. Different shares of one device are therefore cooperative.
type V2 struct {
	options Options

	mu sync.Mutex
	// devices by UUID.
	devices map[string]*device
}

// device is what a V2 remembers of a device.
type device struct {
	// turn has room for one call at a time; a wedged device does not hold up the others.
	turn chan struct{}
	// servers of the last look.
	servers []int
	prober  prober
}

var _ Backend = (*V2)(nil)

// NewV2 starts nothing.
func NewV2(options Options) *V2 {
	return &V2{options: options.withDefaults(), devices: map[string]*device{}}
}

// Ensure starts or adopts the device's daemon and sets its defaults.
func (v *V2) Ensure(ctx context.Context, spec DeviceSpec) error {
	return v.on(ctx, "ensure", spec.UUID, func(c control, d *device) error {
		if err := spec.check(); err != nil {
			return err
		}
		if err := c.ensure(ctx); err != nil {
			return err
		}
		return c.settle(ctx, spec, d)
	})
}

// Recycle ends the device's daemon and its servers, starts another and sets its defaults.
func (v *V2) Recycle(ctx context.Context, spec DeviceSpec) error {
	return v.on(ctx, "recycle", spec.UUID, func(c control, d *device) error {
		if err := spec.check(); err != nil {
			return err
		}
		if err := c.recycle(ctx); err != nil {
			return err
		}
		return c.settle(ctx, spec, d)
	})
}

func (s DeviceSpec) check() error {
	if s.Percent < 0 || s.Percent > 100 || s.Memory < 0 {
		return fmt.Errorf("defaults %d %% and %d bytes out of range", s.Percent, s.Memory)
	}
	return nil
}

// settle sets the defaults of a daemon that runs and reports whether it is ready.
func (c control) settle(ctx context.Context, spec DeviceSpec, d *device) error {
	if err := c.defaults(ctx, spec); err != nil {
		return err
	}
	return c.ready(ctx, d)
}

// Ready checks the servers of the daemon and the state of each.
func (v *V2) Ready(ctx context.Context, uuid string) error {
	return v.on(ctx, "check", uuid, func(c control, d *device) error { return c.ready(ctx, d) })
}

func (c control) ready(ctx context.Context, d *device) error {
	seen, err := c.see(ctx, d)
	if err != nil {
		return err
	}
	return seen.fault()
}

// see looks and remembers the servers for the next look.
func (c control) see(ctx context.Context, d *device) (Daemon, error) {
	seen, err := c.look(ctx, d.servers)
	d.servers = seen.servers()
	return seen, err
}

// Look starts the control program once where the servers are those of the last look.
func (v *V2) Look(ctx context.Context, uuid string) (seen Daemon, err error) {
	err = v.on(ctx, "look at", uuid, func(c control, d *device) (err error) {
		seen, err = c.see(ctx, d)
		return err
	})
	return seen, err
}

// EndClients gives each client's command a timeout of its own, and gives up after two in a row without an answer.
func (v *V2) EndClients(ctx context.Context, uuid string, pids []int) (ended []int, err error) {
	err = v.on(ctx, "end clients of", uuid, func(c control, d *device) error {
		seen, err := c.see(ctx, d)
		if err == nil {
			ended, err = c.endClients(ctx, seen, pids)
		}
		return err
	})
	return ended, err
}

// Probe runs the canary, in a process of its own, since nothing ends a call into a wedged driver but the end of the
// process. Probe does not delay the other calls for the device.
func (v *V2) Probe(ctx context.Context, spec DeviceSpec) error {
	c, err := newControl(v.options, spec.UUID)
	if err != nil {
		return fmt.Errorf("probe MPS of %q: %w", spec.UUID, err)
	}
	p := &v.device(spec.UUID).prober
	if p.command, err = v.canary(); err == nil {
		p.timeout = v.options.CanaryTimeout
		err = c.probe(ctx, p)
	}
	if err != nil {
		return fmt.Errorf("probe MPS of %s: %w", spec.UUID, err)
	}
	return nil
}

func (v *V2) canary() ([]string, error) {
	if len(v.options.Canary) > 0 {
		return v.options.Canary, nil
	}
	self, err := os.Executable()
	return []string{self, "canary"}, err
}

// Environment returns the variables and the mounts of a client. Limits are per process of the client. An active-thread
// percentage is a ceiling, not a reservation. In a read-only directory a tenant can connect to the socket, but neither
// remove it nor write another PID into the daemon's record.
func (v *V2) Environment(spec ClientSpec) ([]string, []Mount) {
	env := []string{PipeVariable + "=" + ContainerPipeDirectory, PercentVariable + "=" + percent(spec.Percent)}
	if spec.Memory > 0 {
		env = append(env, MemoryVariable+"="+clientMemory(spec.UUID, spec.Memory))
	}
	pipe := filepath.Join(v.options.Dir, spec.UUID, "pipe")
	mounts := []Mount{{HostPath: pipe, ContainerPath: ContainerPipeDirectory, ReadOnly: true}}
	if v.options.SharedMemory != "" {
		mounts = append(mounts, Mount{HostPath: v.options.SharedMemory, ContainerPath: containerSharedMemory})
	}
	return env, mounts
}

// Stop ends the device's daemon with MPS's command quit and waits until it is gone.
func (v *V2) Stop(ctx context.Context, uuid string) error {
	return v.on(ctx, "stop", uuid, func(c control, _ *device) error {
		// Before it quits: it removes the record first and ends later.
		pid, _ := c.recorded()
		_, err := c.run(ctx, "quit")
		if err == nil {
			err = c.gone(ctx, pid)
		}
		if errors.Is(err, ErrNotRunning) {
			return nil
		}
		return err
	})
}

// on calls do when it is this call's turn on the device, and names the call in an error.
func (v *V2) on(ctx context.Context, verb, uuid string, do func(control, *device) error) error {
	c, err := newControl(v.options, uuid)
	if err != nil {
		return fmt.Errorf("%s MPS of %q: %w", verb, uuid, err)
	}
	d := v.device(uuid)
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s MPS of %s: wait for another call: %w", verb, uuid, ctx.Err())
	case d.turn <- struct{}{}:
	}
	defer func() { <-d.turn }()
	if err := do(c, d); err != nil {
		return fmt.Errorf("%s MPS of %s: %w", verb, uuid, err)
	}
	return nil
}

func (v *V2) device(uuid string) *device {
	v.mu.Lock()
	defer v.mu.Unlock()
	d, ok := v.devices[uuid]
	if !ok {
		d = &device{turn: make(chan struct{}, 1)}
		v.devices[uuid] = d
	}
	return d
}

// newControl prepares talking to one device's daemon.
func newControl(o Options, uuid string) (control, error) {
	if uuid == "" || uuid != filepath.Base(uuid) || strings.HasPrefix(uuid, ".") {
		return control{}, errors.New("not a device UUID")
	}
	binary, err := exec.LookPath(controlName)
	if err != nil {
		return control{}, ErrNoBinary
	}
	dir := filepath.Join(o.Dir, uuid)
	c := control{
		binary: binary, uuid: uuid, pipe: filepath.Join(dir, "pipe"), log: filepath.Join(dir, "log"),
		multiUser: o.MultiUser, timeout: o.Timeout, launcher: o.Launcher,
	}
	if n := len(c.socket()); n > maxSocketPath {
		return control{}, fmt.Errorf("path %s has %d bytes; a socket's may have %d: choose a shorter directory", c.socket(), n, maxSocketPath)
	}
	return c, nil
}
