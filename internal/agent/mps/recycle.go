package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

const (
	// quitLimit is how long a daemon may take to quit during Recycle. Longer keeps a device from its tenants for longer
	// where the daemon hangs; shorter sends SIGKILL to servers that would have ended in order.
	quitLimit = 5 * time.Second
	// quitCommand makes the daemon end its servers after 2 seconds; alone, quit waits for the clients to end by
	// themselves. Source: the manual page, "quit [-t TIMEOUT]".
	quitCommand = "quit -t 2"
)

// recycle replaces the daemon and its servers. If two processes recycle at the same time, the second finds the work
// done.
func (c control) recycle(ctx context.Context) error {
	before, _ := c.running()
	unlock, err := c.exclude(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if now, ok := c.running(); ok && now != before {
		if _, err := c.run(ctx, ping); err == nil {
			klog.FromContext(ctx).Info("Another process has recycled the MPS control daemon", "device", c.uuid, "pid", now.pid)
			return c.belongs()
		}
	}
	if err := c.end(ctx); err != nil {
		return err
	}
	if err := c.clean(); err != nil {
		return fmt.Errorf("%w; nothing proves that it belongs to %s: end it by hand", err, c.pipe)
	}
	return c.begin(ctx)
}

// end makes the daemon and its servers go: by the command quit, and those that stay, by a signal.
func (c control) end(ctx context.Context) error {
	// Recycle must not end a daemon of another device in this directory.
	if err := c.belongs(); err != nil {
		return err
	}
	before := c.owned()
	brief := c
	brief.timeout = min(quitLimit, c.timeout)
	_, err := brief.run(ctx, quitCommand)
	if err == nil {
		// The servers may outlive the answer.
		err = poll(ctx, brief.timeout, func() (bool, error) { return len(c.left(before)) == 0 && !c.listening(), nil })
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && !errors.Is(err, ErrNotRunning) {
		klog.FromContext(ctx).Info("The MPS control daemon does not quit", "device", c.uuid, "reason", err.Error())
	}
	return c.kill(ctx, before)
}

// left returns the processes of before that still run, and those that have come since.
func (c control) left(before []process) []process {
	left := slices.DeleteFunc(slices.Clone(before), func(p process) bool { return !p.alive() })
	for _, p := range c.owned() {
		if !slices.ContainsFunc(left, func(q process) bool { return p.pid == q.pid }) {
			left = append(left, p)
		}
	}
	return left
}

// kill sends SIGKILL to what is left, daemons first: a running daemon would replace its servers.
func (c control) kill(ctx context.Context, before []process) error {
	var left []process
	killed := map[process]bool{}
	err := poll(ctx, c.timeout, func() (bool, error) {
		left = c.left(before)
		for _, p := range left {
			if killed[p] {
				continue
			}
			klog.FromContext(ctx).Info("Killing a process of MPS that did not quit", "device", c.uuid, "pid", p.pid)
			if err := p.kill(); err != nil {
				return false, err
			}
			killed[p] = true
		}
		return len(left) == 0, nil
	})
	if err == nil && len(killed) > 0 {
		// The last threads of a process that counts as ended can hold its socket for a moment. If it stays, clean says so.
		_ = poll(ctx, c.timeout, func() (bool, error) { return !c.listening(), nil })
	}
	if !errors.Is(err, ErrNoAnswer) {
		return err
	}
	pids := make([]string, 0, len(left))
	for _, p := range left {
		pids = append(pids, fmt.Sprint(p.pid))
	}
	return fmt.Errorf("kill MPS processes %s: they do not end within %v: a process that no signal ends waits for the driver; "+
		"reset the GPU or restart the node", strings.Join(pids, ", "), c.timeout)
}
