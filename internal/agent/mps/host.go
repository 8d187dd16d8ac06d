package mps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// start is a request of an agent to the host. The request names a device and no path, no program and no option beyond
// these.
type start struct {
	UUID      string `json:"uuid"`
	MultiUser bool   `json:"multiUser"`
}

// started is the host's answer; an empty error is success.
type started struct {
	Error string `json:"error,omitempty"`
}

const (
	// maxRequest is more than a request needs.
	maxRequest = 4 << 10
	// requestTime is how long a caller may take to write its request.
	requestTime = 5 * time.Second
	// hostGrace is what the agent waits for longer than the host does for the daemon.
	hostGrace = 2 * time.Second
	// farewell is how long the daemons may take to quit when the host ends. The pod's grace period has to be longer.
	farewell = 30 * time.Second
)

// Host starts control daemons on behalf of an agent, so that they belong to its container and not to the agent's, which
// ends with every upgrade (docs/decisions/0007). When the host ends, its daemons quit in order, before the end of the
// container would send them SIGKILL. A Host is for one Run.
type Host struct {
	// Options say where the daemons' directories are and how long a start may take; the host ignores the rest.
	Options Options

	mu sync.Mutex
	// begun are the daemons that were started here, by UUID.
	begun map[string]control
}

// Run listens on a Unix socket until ctx ends, and then has the daemons that it started quit. It serves only processes
// of its own user. It replaces a socket on which no process listens.
func (h *Host) Run(ctx context.Context, socket string) error {
	listener, err := listenAlone(socket)
	if err != nil {
		return fmt.Errorf("listen for agents: %w", err)
	}
	// The socket's file goes with it, before Run returns.
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	klog.FromContext(ctx).Info("Starting MPS control daemons on request", "socket", socket, "dir", h.Options.Dir)
	var calls sync.WaitGroup
	defer func() {
		calls.Wait()
		h.quit(context.WithoutCancel(ctx))
	}()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("listen for agents: %w", err)
		case err != nil:
			// Out of descriptors, for example. The daemons live only as long as this process does.
			klog.FromContext(ctx).Error(err, "Accepting the connection of an agent failed")
			select {
			case <-ctx.Done():
			case <-time.After(requestTime):
			}
			continue
		}
		calls.Go(func() { h.serve(ctx, conn) })
	}
}

// listenAlone makes the socket, for this user only.
func listenAlone(socket string) (net.Listener, error) {
	if conn, err := net.Dial("unix", socket); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("another process listens on %s: a node has one MPS host", socket)
	}
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == os.ModeSocket {
		_ = os.Remove(socket)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		_ = listener.Close()
		return nil, err
	}
	return listener, nil
}

// serve answers one request.
func (h *Host) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(requestTime))
	var answer started
	if err := h.obey(ctx, conn); err != nil {
		answer.Error = err.Error()
		klog.FromContext(ctx).Error(err, "No MPS control daemon was started")
	}
	_ = conn.SetDeadline(time.Now().Add(requestTime))
	if err := json.NewEncoder(conn).Encode(answer); err != nil {
		klog.FromContext(ctx).Error(err, "An agent did not wait for the answer")
	}
}

func (h *Host) obey(ctx context.Context, conn net.Conn) error {
	if err := sameUser(conn); err != nil {
		return err
	}
	var s start
	// The host refuses unknown fields: a newer agent would otherwise take the option for applied.
	decoder := json.NewDecoder(io.LimitReader(conn, maxRequest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	options := h.Options
	options.MultiUser, options.Launcher = s.MultiUser, ""
	c, err := newControl(options.withDefaults(), s.UUID)
	if err != nil {
		return fmt.Errorf("start MPS for %q: %w", s.UUID, err)
	}
	for _, dir := range []string{c.pipe, c.log} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// The host waits for a start that it has begun, so that its daemon quits too.
	if err := c.startHere(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun == nil {
		h.begun = map[string]control{}
	}
	h.begun[s.UUID] = c
	klog.FromContext(ctx).Info("Started an MPS control daemon for an agent", "device", s.UUID, "pipe", c.pipe)
	return nil
}

// quit ends the daemons of this host, all at once.
func (h *Host) quit(ctx context.Context) {
	var all sync.WaitGroup
	for uuid, c := range h.begun {
		all.Go(func() {
			c.timeout = farewell
			if _, err := c.run(ctx, quitCommand); err != nil && !errors.Is(err, ErrNotRunning) {
				klog.FromContext(ctx).Error(err, "An MPS control daemon does not quit", "device", uuid)
			}
		})
	}
	all.Wait()
}

// sameUser refuses processes of other users. The kernel vouches for the number (unix(7), SO_PEERCRED).
func sameUser(conn net.Conn) error {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("not a Unix socket")
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	if e := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); e != nil || err != nil {
		return errors.Join(e, err)
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("process %d of user %d may not start MPS", peer.Pid, peer.Uid)
	}
	return nil
}

// launch has the host start the daemon.
func (c control) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+hostGrace)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.launcher)
	if err != nil {
		return fmt.Errorf("%w: %w: does the pod of the DaemonSet tandem-mps run on this node?", ErrNoHost, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var answer started
	if err := json.NewEncoder(conn).Encode(start{UUID: c.uuid, MultiUser: c.multiUser}); err != nil {
		return fmt.Errorf("%w: %w", ErrNoHost, err)
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return fmt.Errorf("%w: %w", ErrNoHost, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("MPS host: %s", answer.Error)
	}
	return nil
}
