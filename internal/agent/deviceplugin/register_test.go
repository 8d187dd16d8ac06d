package deviceplugin

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/test/must"
)

// deadSocket leaves a socket that nobody listens on, as a killed kubelet does.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must.OK(t, err)
	l.SetUnlinkOnClose(false)
	must.OK(t, l.Close())
}

// A killed kubelet leaves its socket. Every attempt to register opens a socket of the agent, which must not be taken
// for a sign of the kubelet: the attempts would follow each other without a pause.
func TestAttemptsAtADeadKubeletKeepTheirDistance(t *testing.T) {
	folder := t.TempDir()
	deadSocket(t, filepath.Join(folder, kubeletSocket))
	m, err := metrics.NewAgent(prometheus.NewRegistry())
	must.OK(t, err)
	attempts := make(chan time.Time, 1000)
	server := grpc.NewServer()
	defer server.Stop()
	r := &registrar{
		folder: folder, server: server, plugin: &plugin{moved: make(chan struct{})}, metrics: m,
		beat: func() { attempts <- time.Now() }, watch: watchGrace,
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))))
	ended := make(chan struct{})
	go func() { defer close(ended); r.run(ctx) }()
	defer func() { cancel(); <-ended }()

	last := <-attempts
	for _, wait := range []time.Duration{minRegisterRetry, 2 * minRegisterRetry} {
		next := <-attempts
		if gap := next.Sub(last); gap < wait {
			t.Fatalf("the next attempt came after %v, want %v at least", gap, wait)
		}
		last = next
	}
}

func TestWhatEndsAPause(t *testing.T) {
	folder := t.TempDir()
	own := filepath.Join(folder, socketPrefix+"1.sock")
	deadSocket(t, own)
	lost := filepath.Join(folder, socketPrefix+"2.sock")
	kubelet := filepath.Join(folder, kubeletSocket)
	for name, c := range map[string]struct {
		socket string
		quiet  []fsnotify.Event
		ends   fsnotify.Event
		want   bool
	}{
		"the kubelet's socket appears": {socket: own, ends: fsnotify.Event{Name: kubelet, Op: fsnotify.Create}, want: true},
		"the kubelet's socket goes":    {socket: own, ends: fsnotify.Event{Name: kubelet, Op: fsnotify.Remove}, want: true},
		"the own socket goes":          {socket: lost, ends: fsnotify.Event{Name: lost, Op: fsnotify.Remove}},
		"the own sockets of an attempt come and go before": {
			socket: own,
			quiet: []fsnotify.Event{
				{Name: lost, Op: fsnotify.Remove},      // the one before
				{Name: own, Op: fsnotify.Create},       // the present one
				{Name: own, Op: fsnotify.Remove},       // it is there again by now
				{Name: own + "x", Op: fsnotify.Create}, // of somebody else
			},
			ends: fsnotify.Event{Name: kubelet, Op: fsnotify.Create}, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &registrar{folder: folder, socket: c.socket}
			events := make(chan fsnotify.Event)
			ended := make(chan bool, 1)
			go func() { ended <- r.pause(t.Context(), time.Hour, events, nil) }()
			for _, e := range append(c.quiet, c.ends) {
				select {
				case events <- e:
				case <-ended:
					t.Fatalf("the pause ended before %v", e)
				}
			}
			if got := <-ended; got != c.want {
				t.Errorf("a sign of the kubelet: %v, want %v", got, c.want)
			}
		})
	}
}
