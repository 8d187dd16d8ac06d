package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

const (
	// retryProbe is the pause before another try of a server that is not ready.
	retryProbe = 250 * time.Millisecond
	// killGrace is how long a canary may take to end after SIGKILL. A canary inside the kernel stays for longer; the
	// probe does not wait for it.
	killGrace = time.Second
)

// errNotReady is VerdictNotReady.
var errNotReady = errors.New("the MPS server is not ready for new clients")

// probe runs canaries until one has a verdict or the time is up. Without a daemon a canary would run without MPS and
// report success, so probe checks the daemon first.
func (c control) probe(ctx context.Context, p *prober) error {
	d, err := c.look(ctx, nil)
	if err != nil {
		return err
	}
	if err := d.foreign(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var refused error
	for {
		err := c.canary(ctx, p)
		switch {
		case errors.Is(err, errNotReady):
			refused = err
		case refused != nil && errors.Is(err, ErrProbeTimeout):
			// Time ran out in the last of several; the server refused those before.
			return fmt.Errorf("%w: %w", ErrFault, refused)
		default:
			return err
		}
		if d, err := c.look(ctx, nil); err == nil && d.fault() != nil {
			return d.fault()
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ctx.Err()
			}
			return fmt.Errorf("%w: %w for %v", ErrFault, refused, p.timeout)
		case <-time.After(retryProbe):
		}
	}
}

// prober starts the canaries of one device, one at a time.
type prober struct {
	command []string
	timeout time.Duration
	// The holder of mu runs a canary; stuck is the one that no signal has ended yet.
	mu    sync.Mutex
	stuck *canary
}

// canary is a running canary.
type canary struct {
	cmd    *exec.Cmd
	said   transcript
	stderr transcript
	begin  io.WriteCloser
	ended  chan struct{}
}

// canary starts one canary and returns what it found. A canary that is still waiting for the server when the time is up
// has no work in flight, so SIGKILL does no harm. MPS first ends a canary that became a client and does not finish.
// That says nothing against the server: a device that is busy with the work of others is no wedge.
func (c control) canary(ctx context.Context, p *prober) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck != nil && !p.stuck.over() {
		return fmt.Errorf("%w: an earlier canary, process %d, has not ended", ErrProbeTimeout, p.stuck.cmd.Process.Pid)
	}
	p.stuck = nil
	k, err := c.startCanary(p.command)
	if err != nil {
		return fmt.Errorf("start canary: %w", err)
	}
	inside := k.wait(ctx)
	if k.over() {
		return k.verdict()
	}
	if inside && !c.release(context.WithoutCancel(ctx), k) {
		p.stuck = k
		return nil
	}
	if !k.kill() {
		p.stuck = k
	}
	switch {
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ctx.Err()
	case inside:
		klog.FromContext(ctx).Info("A canary was let in and did not finish its work: the device is busy", "device", c.uuid)
		return nil
	}
	return c.late(context.WithoutCancel(ctx), p.timeout)
}

// late says why the server accepted no client for so long. A server that is still starting, which can take long where
// the driver keeps no persistent state, does not hang.
func (c control) late(ctx context.Context, waited time.Duration) error {
	d, err := c.look(ctx, nil)
	if err != nil {
		return err
	}
	for _, s := range d.Servers {
		if s.State == Initializing {
			return fmt.Errorf("canary: the MPS server %d lets nobody in within %v: it is still starting", s.PID, waited)
		}
	}
	return fmt.Errorf("%w within %v", ErrProbeTimeout, waited)
}

// startCanary starts the canary as a client with the least share of the SMs.
func (c control) startCanary(command []string) (*canary, error) {
	k := &canary{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	k.cmd.Env = append(c.environ(), PercentVariable+"=1")
	k.cmd.Dir = "/"
	k.cmd.Stdout, k.cmd.Stderr = &k.said, &k.stderr
	k.cmd.WaitDelay = killGrace
	var err error
	if k.begin, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	k.said.news = make(chan struct{}, 1)
	if err := k.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = k.cmd.Wait()
		close(k.ended)
	}()
	return k, nil
}

// wait gives the canary its word to begin once it is inside, and waits until it has ended or the time is up.
func (k *canary) wait(ctx context.Context) (inside bool) {
	for {
		select {
		case <-ctx.Done():
			return inside
		case <-k.ended:
			return inside
		case <-k.said.news:
		}
		if connected, _, _ := parseVerdict(k.said.String()); connected && !inside && ctx.Err() == nil {
			inside = true
			_, _ = io.WriteString(k.begin, "begin\n")
		}
	}
}

func (k *canary) over() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

// kill sends SIGKILL and reports whether the canary is gone.
func (k *canary) kill() bool {
	_ = k.cmd.Process.Kill()
	select {
	case <-k.ended:
		return true
	case <-time.After(killGrace):
		return false
	}
}

func (k *canary) verdict() error {
	_, v, why := parseVerdict(k.said.String())
	switch v {
	case VerdictWell, VerdictFull:
		return nil
	case VerdictNoCUDA:
		return fmt.Errorf("%w: %s", ErrNoCUDA, why)
	case VerdictNotReady:
		return fmt.Errorf("%w: %s", errNotReady, why)
	case VerdictFault:
		return fmt.Errorf("%w: %s", ErrFault, why)
	case VerdictFailed:
		return fmt.Errorf("canary: %s", why)
	}
	return fmt.Errorf("canary ended without a verdict: %v: %s", k.cmd.ProcessState, bytes.TrimSpace([]byte(k.stderr.String())))
}

// release makes MPS end the work of a canary, and reports whether SIGKILL is safe now.
func (c control) release(ctx context.Context, k *canary) bool {
	err := c.endOne(ctx, k.cmd.Process.Pid)
	if err != nil {
		klog.FromContext(ctx).Info("A busy canary is left to end by itself", "device", c.uuid, "reason", err.Error())
	}
	return err == nil
}

// endOne ends the GPU work of one client.
func (c control) endOne(ctx context.Context, pid int) error {
	d, err := c.look(ctx, nil)
	if err != nil {
		return err
	}
	ended, err := c.endClients(ctx, d, []int{pid})
	if err == nil && len(ended) == 0 {
		return fmt.Errorf("the daemon does not list process %d as a client", pid)
	}
	return err
}

// foreign returns an error where a server is another user's. Such a server serves that user alone, so a canary would
// wait for the end of all its clients, and its wait would say nothing. A server for many users is root's, and so is the
// agent.
func (d Daemon) foreign() error {
	for _, s := range d.Servers {
		info, err := os.Stat(procPath(s.PID, ""))
		if err != nil {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
			return fmt.Errorf("%w: server %d serves user %d alone", ErrUnwatched, s.PID, stat.Uid)
		}
	}
	return nil
}

// transcript collects what a process writes. The transcript keeps the first 16 KiB.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
	// news, where set, has a value after each write.
	news chan struct{}
}

const maxTranscript = 16 << 10

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p[:min(len(p), maxTranscript-t.text.Len())])
	select {
	case t.news <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
