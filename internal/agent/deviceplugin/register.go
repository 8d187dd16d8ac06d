package deviceplugin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-gpu/tandem/internal/agent/kubeletconn"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// kubeletSocket is where the kubelet takes registrations, in the folder of the device plugins.
const kubeletSocket = "kubelet.sock"

// registrar keeps the agent registered with the kubelet: at once when it starts, and again whenever the kubelet
// restarts. The registration waits for nothing else, since the kubelet rejects pods for good while the node has no
// slots.
//
// Every registration uses a socket of its own name. The kubelet refuses a second registration under a path to which it
// still holds a connection, and then never cleans up that connection (devicemanager PluginConnected). A path that the
// agent never uses twice avoids that, however fast the agent comes back.
type registrar struct {
	folder  string
	server  *grpc.Server
	plugin  *plugin
	metrics *metrics.Agent
	beat    func()

	socket   string
	listener net.Listener
	// last is the kubelet's socket that the agent registered with, at the time since.
	last  socketID
	since time.Time
	// watch is how long the kubelet may take to watch after that; see watchGrace.
	watch time.Duration
}

const (
	// socketPrefix starts the names of the agent's sockets.
	socketPrefix = "tandem-"
	// registerTimeout bounds one attempt. The kubelet dials back inside it, for up to 10 s.
	registerTimeout = 12 * time.Second
	// watchGrace is how long after a registration the kubelet may take to watch, before the agent registers again.
	watchGrace = 5 * time.Second
	// minRegisterRetry and maxRegisterRetry bound the wait between attempts that failed. The kubelet's socket is there a
	// moment before the kubelet listens on it, so the first attempt often fails.
	minRegisterRetry = 10 * time.Millisecond
	maxRegisterRetry = 5 * time.Second
	// socketPoll is the net under the file notifications.
	socketPoll = time.Second
)

// socketID identifies one socket file among all that were at the same path.
type socketID struct {
	inode uint64
	made  time.Time
}

func identify(path string) (socketID, error) {
	info, err := os.Stat(path)
	if err != nil {
		return socketID{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return socketID{}, fmt.Errorf("stat %s: no inode", path)
	}
	return socketID{inode: stat.Ino, made: info.ModTime()}, nil
}

// run registers until ctx ends.
func (r *registrar) run(ctx context.Context) {
	log := klog.FromContext(ctx)
	r.removeStale(ctx)
	defer r.close()
	events, stop := r.notify(ctx)
	defer stop()
	wait := minRegisterRetry
	for ctx.Err() == nil {
		r.beat()
		_, moved := r.plugin.watched()
		err := r.step(ctx)
		switch {
		case err == nil:
			wait = minRegisterRetry
			r.pause(ctx, socketPoll, events, moved)
		case ctx.Err() == nil:
			log.Info("Cannot register with the kubelet, trying again", "why", err.Error(), "retryIn", wait)
			if r.pause(ctx, wait, events, nil) {
				wait = minRegisterRetry // a kubelet that comes back may have its socket before it answers
			} else {
				wait = min(2*wait, maxRegisterRetry)
			}
		}
	}
}

// notify watches the folder. If that is impossible, the poll alone must do.
func (r *registrar) notify(ctx context.Context) (<-chan fsnotify.Event, func()) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(r.folder)
	}
	if err != nil {
		klog.FromContext(ctx).Info("Cannot watch the device plugin folder, polling it", "folder", r.folder, "why", err.Error())
		return nil, func() {}
	}
	go func() {
		for err := range w.Errors { // until Close; unread errors would hold up the events
			klog.FromContext(ctx).V(2).Info("Watching the device plugin folder", "why", err.Error())
		}
	}()
	return w.Events, func() { _ = w.Close() }
}

// pause waits for d or for a sign that something changed, and reports whether that was the kubelet's socket. A change
// of the agent's own sockets ends the pause only if the present one is lost: every attempt opens one and drops another.
func (r *registrar) pause(ctx context.Context, d time.Duration, events <-chan fsnotify.Event, moved <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-moved:
			return false
		case e := <-events:
			if e.Name == filepath.Join(r.folder, kubeletSocket) {
				return true
			}
			if e.Name == r.socket && vanished(r.socket) {
				return false
			}
		}
	}
}

// step does one registration where it is due.
func (r *registrar) step(ctx context.Context) error {
	if err := r.keepSocket(); err != nil {
		return err
	}
	now, err := identify(filepath.Join(r.folder, kubeletSocket))
	if err != nil {
		return fmt.Errorf("find the kubelet: %w", err)
	}
	watched, _ := r.plugin.watched()
	if now == r.last && (watched || time.Since(r.since) < r.watch) {
		return nil
	}
	if err := r.listen(); err != nil {
		return err
	}
	if err := r.register(ctx); err != nil {
		return err
	}
	r.last, r.since = now, time.Now()
	r.metrics.Registered()
	klog.FromContext(ctx).Info("Registered with the kubelet", "resource", v1alpha1.ResourceVGPU, "socket", r.socket)
	return nil
}

func (r *registrar) register(ctx context.Context) error {
	conn, err := kubeletconn.Dial(filepath.Join(r.folder, kubeletSocket))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version:      pluginapi.Version,
		Endpoint:     filepath.Base(r.socket),
		ResourceName: v1alpha1.ResourceVGPU,
		Options:      pluginOptions(),
	})
	if err != nil {
		return fmt.Errorf("register %s: %w", v1alpha1.ResourceVGPU, err)
	}
	return nil
}

// listen opens a socket under a fresh name and drops the one before. Connections over the old one live on.
func (r *registrar) listen() error {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return fmt.Errorf("name socket: %w", err)
	}
	r.close()
	r.socket = filepath.Join(r.folder, socketPrefix+hex.EncodeToString(b[:])+".sock")
	return r.serve()
}

// keepSocket opens the socket again at its path when the file has vanished.
func (r *registrar) keepSocket() error {
	if r.socket == "" {
		return nil
	}
	if !vanished(r.socket) {
		return nil
	}
	if r.listener != nil {
		_ = r.listener.Close()
	}
	return r.serve()
}

func vanished(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

func (r *registrar) serve() error {
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		return fmt.Errorf("open device plugin socket: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // a later socket may stand at the path by then
	}
	r.listener = l
	go func() { _ = r.server.Serve(l) }() // ends with the listener or the server
	return nil
}

func (r *registrar) close() {
	if r.listener != nil {
		_ = r.listener.Close()
		_ = os.Remove(r.socket)
		r.listener = nil
	}
}

// removeStale deletes sockets that an agent left behind that could not clean up. No process listens on them.
func (r *registrar) removeStale(ctx context.Context) {
	paths, _ := filepath.Glob(filepath.Join(r.folder, socketPrefix+"*.sock"))
	for _, path := range paths {
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = conn.Close()
			continue
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			klog.FromContext(ctx).V(2).Info("Removing the socket of an agent that ended", "socket", path)
			_ = os.Remove(path)
		}
	}
}
