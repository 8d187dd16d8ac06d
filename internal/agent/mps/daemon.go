package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// ping is a command that every daemon answers and that changes nothing.
const ping = "get_default_active_thread_percentage"

// ensure adopts or starts. ensure replaces a daemon only where it certainly does not run any more.
func (c control) ensure(ctx context.Context) error {
	_, err := c.run(ctx, ping)
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Adopted an MPS control daemon", "device", c.uuid, "pipe", c.pipe)
		return c.belongs()
	}
	if !errors.Is(err, ErrNotRunning) {
		return err
	}
	// An agent that ends during an upgrade can still be at work here.
	unlock, err := c.exclude(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := c.run(ctx, ping); err == nil {
		return c.belongs()
	}
	return c.begin(ctx)
}

// begin starts a daemon where none lives. The caller holds the lock.
func (c control) begin(ctx context.Context) error {
	if err := c.clean(); err != nil {
		return err
	}
	if err := c.start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", controlName, err)
	}
	klog.FromContext(ctx).Info("Started an MPS control daemon", "device", c.uuid, "pipe", c.pipe)
	return c.answers(ctx)
}

// lockWait bounds the wait for another process at work in the same directory, in timeouts: quitting, SIGKILL and
// starting take one each.
const lockWait = 3

// exclude makes the directories and keeps other processes from cleaning up, starting and ending daemons in them. The
// lock ends with its holder.
func (c control) exclude(ctx context.Context) (func(), error) {
	for _, dir := range []string{c.pipe, c.log} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(c.pipe), "agent.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = poll(ctx, lockWait*c.timeout, func() (bool, error) {
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

// defaults sets the limits of later servers and reads them back: the daemon accepts every device name and every command
// without a reliable error.
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

// pollStep is the pause between two looks for a change of the daemon.
const pollStep = 20 * time.Millisecond

// answers waits until a started daemon answers.
func (c control) answers(ctx context.Context) error {
	return poll(ctx, c.timeout, func() (bool, error) {
		_, err := c.run(ctx, ping)
		if errors.Is(err, ErrNotRunning) {
			return false, nil
		}
		return err == nil, err
	})
}

// gone waits until no process is left of a daemon that has the command to quit. A PID of 0 stands for a process outside
// the visible namespace.
func (c control) gone(ctx context.Context, pid int) error {
	return poll(ctx, c.timeout, func() (bool, error) { return !isMPS(pid) && !c.listening(), nil })
}

// poll calls done until it returns true, at most for a time.
func poll(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(pollStep)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w within %v", ErrNoAnswer, limit)
		case <-ticker.C:
		}
	}
}
