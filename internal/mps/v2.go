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
	"syscall"
	"time"

	"k8s.io/klog/v2"
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

// ping is a command that every daemon answers and that changes nothing.
const ping = "get_default_active_thread_percentage"

// ensure adopts or starts. Only a daemon that is surely dead is replaced.
func (c control) ensure(ctx context.Context) error {
	_, err := c.run(ctx, ping)
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Adopted an MPS control daemon", "device", c.uuid, "pipe", c.pipe)
		return c.belongs()
	}
	if !errors.Is(err, ErrNotRunning) {
		return err
	}
	for _, dir := range []string{c.pipe, c.log} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// An agent that is being replaced can still be at work here.
	unlock, err := c.exclude(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := c.run(ctx, ping); err == nil {
		return c.belongs()
	}
	if err := c.clean(); err != nil {
		return err
	}
	if err := c.start(ctx); err != nil {
		return fmt.Errorf("start nvidia-cuda-mps-control: %w", err)
	}
	klog.FromContext(ctx).Info("Started an MPS control daemon", "device", c.uuid, "pipe", c.pipe)
	return c.answers(ctx)
}

// exclude keeps other processes from cleaning and starting in the same directory. The lock ends with its holder.
func (c control) exclude(ctx context.Context) (func(), error) {
	f, err := os.OpenFile(filepath.Join(filepath.Dir(c.pipe), "agent.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = c.poll(ctx, func() (bool, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}

// defaults sets the limits of servers to come and reads them back: the daemon takes every device name and every
// command without an error that could be relied on.
func (c control) defaults(ctx context.Context, spec DeviceSpec) error {
	want := spec.Percent
	if want == 0 {
		want = 100
	}
	if err := c.agree(ctx, ping, "set_default_active_thread_percentage "+percent(want), func(shown string) bool {
		return samePercent(shown, want)
	}); err != nil {
		return err
	}
	if spec.Memory == 0 {
		return nil
	}
	get := "get_default_device_pinned_mem_limit " + c.uuid
	set := "set_default_device_pinned_mem_limit " + c.uuid + " " + megabytes(spec.Memory)
	return c.agree(ctx, get, set, func(shown string) bool { return sameMemory(shown, spec.Memory) })
}

// agree sets a value unless the daemon has it already, and fails if it does not have it then.
func (c control) agree(ctx context.Context, get, set string, same func(string) bool) error {
	shown, err := c.run(ctx, get)
	if err != nil || same(shown) {
		return err
	}
	said, err := c.run(ctx, set)
	if err != nil {
		return err
	}
	if shown, err = c.run(ctx, get); err != nil {
		return err
	}
	if !same(shown) {
		return fmt.Errorf("command %q was not obeyed: it said %q, and the daemon shows %q", set, said, shown)
	}
	return nil
}

func (c control) ready(ctx context.Context) error {
	list, err := c.run(ctx, "get_server_list")
	if err != nil {
		return err
	}
	for _, server := range strings.Fields(list) {
		status, err := c.run(ctx, "get_server_status "+server)
		if err != nil {
			return err
		}
		if status == "FAULT" {
			return fmt.Errorf("%w: server %s", ErrFault, server)
		}
	}
	return nil
}

// pollStep is how often a change of the daemon is looked for.
const pollStep = 20 * time.Millisecond

// answers waits until a started daemon answers.
func (c control) answers(ctx context.Context) error {
	return c.poll(ctx, func() (bool, error) {
		_, err := c.run(ctx, ping)
		if errors.Is(err, ErrNotRunning) {
			return false, nil
		}
		return err == nil, err
	})
}

// gone waits until nothing is left of a daemon that was told to quit. A PID of 0 is one that cannot be seen.
func (c control) gone(ctx context.Context, pid int) error {
	return c.poll(ctx, func() (bool, error) { return !isMPS(pid) && !c.listening(), nil })
}

func (c control) poll(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ticker := time.NewTicker(pollStep)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w within %v", ErrNoAnswer, c.timeout)
		case <-ticker.C:
		}
	}
}
