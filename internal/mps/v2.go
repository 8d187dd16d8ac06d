package mps

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// ContainerPipeDirectory is where a container sees the pipe directory of its device. It is MPS's own default, so a
// program that loses its environment still finds the daemon: a client that finds none runs without MPS and without any
// limit.
const ContainerPipeDirectory = "/tmp/nvidia-mps"

// Options of a V2.
type Options struct {
	// Dir holds <GPU UUID>/{pipe,log} for each device. It has to be the same directory on the host.
	Dir string
	// Timeout for one command, and for the start of a daemon; 10 seconds unless set. Shorter mistakes a busy daemon for
	// a wedged one; longer delays the moment when a wedged device goes sick.
	Timeout time.Duration
	// MultiUser lets clients of all users be served at once. Without it a daemon serves one user at a time: a client of
	// another user waits, for hours if need be, until the clients of the first are gone. With it all clients are the
	// root user's to MPS, and the agent has to be root. Source: NVIDIA MPS documentation, -multiuser-server; Volta or
	// newer. A daemon that is adopted keeps the mode that it was started in.
	MultiUser bool
}

// V2 runs MPS as drivers before r615 know it: the server has one default, and the client's environment can only lower
// it. Different shares of one device are therefore cooperative.
type V2 struct {
	options Options

	mu sync.Mutex
	// locks keep two calls for one device apart; a wedged device does not hold up the others.
	locks map[string]*sync.Mutex
}

var _ Backend = (*V2)(nil)

// NewV2 starts nothing.
func NewV2(options Options) *V2 {
	if options.Timeout == 0 {
		options.Timeout = 10 * time.Second
	}
	return &V2{options: options, locks: map[string]*sync.Mutex{}}
}

// Ensure starts or adopts the device's daemon and sets its defaults.
func (v *V2) Ensure(ctx context.Context, spec DeviceSpec) error {
	if spec.Percent < 0 || spec.Percent > 100 || spec.Memory < 0 {
		return fmt.Errorf("ensure MPS for %s: defaults %d %% and %d bytes out of range", spec.UUID, spec.Percent, spec.Memory)
	}
	c, unlock, err := v.control(spec.UUID)
	if err != nil {
		return fmt.Errorf("ensure MPS for %q: %w", spec.UUID, err)
	}
	defer unlock()
	if err := c.ensure(ctx); err != nil {
		return fmt.Errorf("ensure MPS for %s: %w", spec.UUID, err)
	}
	if err := c.defaults(ctx, spec); err != nil {
		return fmt.Errorf("ensure MPS for %s: %w", spec.UUID, err)
	}
	if err := c.ready(ctx); err != nil {
		return fmt.Errorf("ensure MPS for %s: %w", spec.UUID, err)
	}
	return nil
}

// Ready asks the daemon for its servers and each server for its status.
func (v *V2) Ready(ctx context.Context, uuid string) error {
	c, unlock, err := v.control(uuid)
	if err != nil {
		return fmt.Errorf("check MPS of %q: %w", uuid, err)
	}
	defer unlock()
	if err := c.ready(ctx); err != nil {
		return fmt.Errorf("check MPS of %s: %w", uuid, err)
	}
	return nil
}

// Environment returns the variables and the mount of a client. Limits are per process of the client. An
// active-thread percentage is a ceiling, not a reservation.
func (v *V2) Environment(spec ClientSpec) ([]string, []Mount) {
	env := []string{PipeVariable + "=" + ContainerPipeDirectory, PercentVariable + "=" + percent(spec.Percent)}
	if spec.Memory > 0 {
		env = append(env, MemoryVariable+"="+clientMemory(spec.UUID, spec.Memory))
	}
	pipe := filepath.Join(v.options.Dir, spec.UUID, "pipe")
	return env, []Mount{{HostPath: pipe, ContainerPath: ContainerPipeDirectory}}
}

// Stop ends the device's daemon with MPS's command quit and waits until it is gone.
func (v *V2) Stop(ctx context.Context, uuid string) error {
	c, unlock, err := v.control(uuid)
	if err != nil {
		return fmt.Errorf("stop MPS of %q: %w", uuid, err)
	}
	defer unlock()
	// Before it quits: it removes the record first and ends later.
	pid, _ := c.recorded()
	_, err = c.run(ctx, "quit")
	if err == nil {
		err = c.gone(ctx, pid)
	}
	if err != nil && !errors.Is(err, ErrNotRunning) {
		return fmt.Errorf("stop MPS of %s: %w", uuid, err)
	}
	return nil
}

// control prepares talking to one device's daemon, with the lock of that device.
func (v *V2) control(uuid string) (control, func(), error) {
	if uuid == "" || uuid != filepath.Base(uuid) || strings.HasPrefix(uuid, ".") {
		return control{}, nil, errors.New("not a device UUID")
	}
	binary, err := exec.LookPath("nvidia-cuda-mps-control")
	if err != nil {
		return control{}, nil, ErrNoBinary
	}
	dir := filepath.Join(v.options.Dir, uuid)
	c := control{
		binary: binary, uuid: uuid, timeout: v.options.Timeout, args: []string{"-d"},
		pipe: filepath.Join(dir, "pipe"), log: filepath.Join(dir, "log"),
	}
	if v.options.MultiUser {
		c.args = append(c.args, "-multiuser-server")
	}
	if n := len(c.socket()); n > maxSocketPath {
		return control{}, nil, fmt.Errorf("path %s has %d bytes; a socket's may have %d: choose a shorter directory", c.socket(), n, maxSocketPath)
	}
	v.mu.Lock()
	lock, ok := v.locks[uuid]
	if !ok {
		lock = new(sync.Mutex)
		v.locks[uuid] = lock
	}
	v.mu.Unlock()
	lock.Lock()
	return c, lock.Unlock, nil
}
