package podsource

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/internal/agent/loop"
)

// Watch knows the pods of the node that request vGPUs, from the kubelet, or from the API server where the kubelet does
// not serve them. Sweeper, telemetry and terminator share the watch, so that none of them lists all pods again and
// again.
//
// The kubelet sends changes of a pod's status and every change of a pod in deletion. It sends DELETED when the last
// container of a pod has ended, which may be long before the pod is gone. The kubelet sends no changes of annotations.
// So the watch starts anew from time to time, which gives all pods as they are.
type Watch struct {
	client podsapi.PodsClient
	// choice is between the kubelet and the server.
	choice *choice
	server server
	broke  func()
	beat   func()
	// renew is how long one watch of the kubelet lasts after its first list, poll how often the agent lists pods where
	// the kubelet has no watch. retry is the first wait after a failure, and again the time between two looks at a
	// kubelet that does not serve the Pods API.
	renew, poll, retry, again time.Duration

	mu   sync.Mutex
	pods map[types.UID]*Tenant
	// synced: pods is complete, and no change has been missed since; once: the pods were complete at some time.
	synced, once bool
	changed      chan struct{}
	// lost is the time since which no source answers, and view the report on that.
	lost time.Time
	view View
	seen chan struct{}
}

// View is the report on the source of the pods.
type View struct {
	Server bool
	// Problem says why the pods are unknown, "" where they are known or may be again in a moment.
	Problem string
}

const (
	// renewWatch bounds how late the agent sees a change of an annotation. A new watch costs what a list costs: some
	// milliseconds for a hundred pods.
	renewWatch = time.Minute
	// openWatch bounds how long the kubelet takes to send all pods at first. A watch that takes longer has failed.
	openWatch = time.Minute
	// pollPods is the pause between two lists without a watch. The pause must be well below the termination margin.
	pollPods = 2 * time.Second
	// minWatchWait and maxWatchWait bound the wait after a watch that failed. Meanwhile pods terminate unseen.
	minWatchWait = 100 * time.Millisecond
	maxWatchWait = 2 * time.Second
	// lossGrace is how long the pods may be unknown before that is a problem of the node: a kubelet restarts in less.
	lossGrace = 15 * time.Second
)

func newWatch(client podsapi.PodsClient, broke, beat func()) *Watch {
	return &Watch{
		client: client, broke: broke, beat: beat, renew: renewWatch, poll: pollPods, retry: minWatchWait, again: LookAgain,
		pods: map[types.UID]*Tenant{}, changed: make(chan struct{}), lost: time.Now(), seen: make(chan struct{}),
	}
}

// ErrPodsUnknown says that no source of the pods answers.
var ErrPodsUnknown = errors.New("the pods of the node are not known")

// Snapshot returns the pods by UID and a channel that is closed at the next change. With ErrPodsUnknown it returns the
// last known pods. The map is the caller's, the pods are not.
func (w *Watch) Snapshot() (map[types.UID]*Tenant, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	if !w.synced {
		err = w.choice.errUntold()
	}
	return maps.Clone(w.pods), w.changed, err
}

// last returns the last known pods, in order, and whether there were any.
func (w *Watch) last() ([]*v1.Pod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tenants := ByName(w.pods)
	pods := make([]*v1.Pod, len(tenants))
	for i, t := range tenants {
		pods[i] = t.Pod
	}
	return pods, w.once
}

// Viewed returns the report on the source of the pods, with a channel that closes when the report changes.
func (w *Watch) Viewed() (View, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.view, w.seen
}

// look brings the view up to date. The caller holds the lock.
func (w *Watch) look(problem string) {
	now := View{Server: w.choice.asksServer(), Problem: problem}
	if now != w.view {
		w.view = now
		close(w.seen)
		w.seen = make(chan struct{})
	}
}

// Run follows the pods until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	w.mu.Lock()
	w.look("")
	w.mu.Unlock()
	wait := w.retry
	for ctx.Err() == nil {
		w.beat()
		w.choice.look(ctx)
		err := w.turn(ctx)
		if err == nil {
			wait = w.retry
			continue
		}
		if ctx.Err() != nil {
			return
		}
		w.choice.failed(ctx, err, time.Now())
		w.lose(ctx, err)
		loop.Pause(ctx, wait)
		wait = min(2*wait, max(maxWatchWait, w.retry))
	}
}

// turn follows the source of now for a while. turn returns nil when that is over.
func (w *Watch) turn(ctx context.Context) error {
	if w.choice.asksServer() {
		return w.followServer(ctx)
	}
	err := w.follow(ctx)
	if status.Code(err) == codes.Unimplemented {
		if err = w.list(ctx); err == nil {
			loop.Pause(ctx, w.poll)
		}
	}
	return err
}

// follow watches the kubelet for a while. follow returns nil when that is over.
func (w *Watch) follow(ctx context.Context) error {
	// Not a deadline: gRPC would send it to the server, which could end the watch first, and that looks like a failure.
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := time.AfterFunc(openWatch, cancel)
	defer ends.Stop()
	stream, err := w.client.WatchPods(bounded, &podsapi.WatchPodsRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return err
	}
	initial := map[types.UID]*Tenant{}
	for {
		event, err := stream.Recv()
		if err != nil {
			if bounded.Err() != nil && initial == nil && ctx.Err() == nil {
				return nil
			}
			return err
		}
		if event.Type == podsapi.EventType_INITIAL_SYNC_COMPLETE {
			w.replace(initial)
			initial = nil
			ends.Reset(w.renew)
			continue
		}
		pod, err := decodePod(event.Pod)
		if err != nil {
			return err
		}
		if initial != nil {
			keep(initial, pod)
			continue
		}
		w.apply(event.Type, pod)
	}
}

// list takes all pods over without a watch.
func (w *Watch) list(ctx context.Context) error {
	answer, err := w.client.ListPods(ctx, &podsapi.ListPodsRequest{}, grpc.WaitForReady(false))
	if err != nil {
		return err
	}
	pods := map[types.UID]*Tenant{}
	for _, raw := range answer.Pods {
		pod, err := decodePod(raw)
		if err != nil {
			return err
		}
		keep(pods, pod)
	}
	w.replace(pods)
	return nil
}

func (w *Watch) apply(kind podsapi.EventType, pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.pods[pod.UID]
	if kind == podsapi.EventType_DELETED {
		delete(w.pods, pod.UID)
		w.tell()
		return
	}
	if !keep(w.pods, pod) {
		return
	}
	w.pods[pod.UID].leave(before, before != nil, time.Now())
	w.tell()
}

func (w *Watch) replace(pods map[types.UID]*Tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for uid, t := range pods {
		t.leave(w.pods[uid], false, now)
	}
	w.pods, w.synced, w.once = pods, true, true
	w.choice.worked()
	w.look("")
	w.tell()
}

// lose notes that the agent may miss changes from now on, and why.
func (w *Watch) lose(ctx context.Context, err error) {
	if isRPC(err) {
		err = podsAPIError(err)
	}
	w.broke()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.synced {
		w.synced, w.lost = false, now
	}
	level := 2
	if apierrors.IsForbidden(err) || now.Sub(w.lost) >= lossGrace {
		if w.view.Problem == "" {
			level = 0
		}
		w.look(err.Error())
	}
	klog.FromContext(ctx).V(level).Info("Cannot follow the pods now", "why", err.Error())
	w.tell()
}

// isRPC reports whether an error is an answer of the kubelet's, or the lack of one.
func isRPC(err error) bool {
	_, ok := status.FromError(err)
	return ok
}

// tell wakes the followers of the pods. The caller holds the lock.
func (w *Watch) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}
