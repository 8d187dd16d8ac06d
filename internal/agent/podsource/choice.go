package podsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/internal/agent/metrics"
)

const (
	// KubeletSilence is how long a kubelet that served the Pods API may be silent before the agent asks the API server.
	// A kubelet restarts in less time.
	KubeletSilence = 5 * time.Second
	// LookAgain is the time between two looks whether the kubelet serves the Pods API after all.
	LookAgain = 5 * time.Second
	// servedTimeout bounds one such look.
	servedTimeout = time.Second
)

// choice chooses the source of the node's pods: the kubelet where it serves the Pods API, else the API server (decision
// 0021). A nil one chooses the kubelet.
type choice struct {
	client podsapi.PodsClient
	socket string
	// possible says that the agent has a client of the API server.
	possible bool
	silence  time.Duration
	told     func(source string)

	mu     sync.Mutex
	server bool
	// failing is since when the kubelet does not serve the Pods API that it served.
	failing time.Time
}

// newChoice begins with the kubelet, unless it has no socket for the Pods API and the API server is a possible source.
func newChoice(client podsapi.PodsClient, socket string, possible bool, told func(string)) *choice {
	_, err := os.Stat(socket)
	return &choice{
		client: client, socket: socket, possible: possible, silence: KubeletSilence, told: told,
		server: possible && errors.Is(err, fs.ErrNotExist),
	}
}

// asksServer reports whether the present source is the API server.
func (c *choice) asksServer() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// worked notes that the present source has sent all pods.
func (c *choice) worked() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = time.Time{}
	c.tell()
}

// tell shows the source in the metrics.  The caller holds the lock.
func (c *choice) tell() {
	source := metrics.PodsFromKubelet
	if c.server {
		source = metrics.PodsFromServer
	}
	c.told(source)
}

// failed notes that the source of now did not answer, and turns to the API server where the kubelet has not served the Pods
// API for a while.
func (c *choice) failed(ctx context.Context, err error, now time.Time) {
	if c == nil || !c.possible || !isUnserved(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server {
		return
	}
	if c.failing.IsZero() {
		c.failing = now
	}
	if now.Sub(c.failing) < c.silence {
		return
	}
	c.server = true
	c.tell()
	klog.FromContext(ctx).Info("The kubelet does not serve the Pods API: reading the pods of this node from the API server", "socket", c.socket, "why", err.Error())
}

// isUnserved reports whether an error says that no server has the Pods API, and not that a server failed.
func isUnserved(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.Unimplemented
}

// look turns back to a kubelet that serves the Pods API now, and reports whether it did.
func (c *choice) look(ctx context.Context) bool {
	if !c.asksServer() {
		return false
	}
	if _, err := os.Stat(c.socket); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	// No pod has this UID: any answer shows that the server works.
	_, err := c.client.GetPod(ctx, &podsapi.GetPodRequest{PodUID: "tandem"}, grpc.WaitForReady(false))
	if err != nil && (isUnserved(err) || ctx.Err() != nil) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.failing = false, time.Time{}
	c.tell()
	klog.FromContext(ctx).Info("The kubelet serves the Pods API: reading the pods of this node from it", "socket", c.socket)
	return true
}

// source names the present source, for messages.
func (c *choice) source() string {
	if c.asksServer() {
		return "the API server"
	}
	return "the kubelet"
}

// errUntold is the error while no source has sent the pods of the node.
func (c *choice) errUntold() error {
	return fmt.Errorf("%w: %s has not told them", ErrPodsUnknown, c.source())
}
