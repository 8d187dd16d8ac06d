package podsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/kubeletconn"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// watchBench follows a scripted kubelet's pods.
type watchBench struct {
	*Watch
	t       *testing.T
	kubelet *podsKubelet
	broken  atomic.Int32
}

func newWatchBench(t *testing.T, wrap func(podsapi.PodsClient) podsapi.PodsClient) *watchBench {
	t.Helper()
	k := newPodsKubelet(t)
	conn, err := kubeletconn.Dial(k.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w := &watchBench{t: t, kubelet: k}
	client := podsapi.NewPodsClient(conn)
	if wrap != nil {
		client = wrap(client)
	}
	w.Watch = newWatch(client, func() { w.broken.Add(1) }, func() {})
	w.retry, w.poll, w.renew = time.Millisecond, time.Millisecond, time.Hour
	return w
}

func (w *watchBench) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended })
}

// await waits until exactly these pods are known, and returns them.
func (w *watchBench) await(names ...string) map[types.UID]*Tenant {
	w.t.Helper()
	var pods map[types.UID]*Tenant
	fixture.Eventually(w.t, "pods", func() error {
		var err error
		if pods, _, err = w.Snapshot(); err != nil {
			return err
		}
		var have []string
		for _, p := range ByName(pods) {
			have = append(have, p.Pod.Name)
		}
		if fmt.Sprint(have) != fmt.Sprint(names) {
			return fmt.Errorf("have %v, want %v", have, names)
		}
		return nil
	})
	return pods
}

func TestPodsAreFollowed(t *testing.T) {
	w := newWatchBench(t, nil)
	if _, _, err := w.Snapshot(); !errors.Is(err, ErrPodsUnknown) {
		t.Errorf("before the first answer: %v, want that the pods are unknown", err)
	}
	plain := fixture.Unplaced("plain")
	plain.Spec.Containers = []v1.Container{{Name: "main"}}
	w.kubelet.add(fixture.Placed(t, "a", fixture.App(fixture.G0, 3)), plain)
	w.start()
	pods := w.await("a")
	if a := pods["uid-a"]; a.Err != nil || len(a.Assignment.Containers) != 1 {
		t.Errorf("assignment %+v (%v)", a.Assignment, a.Err)
	}
	w.kubelet.add(fixture.Unplaced("b", fixture.App(fixture.G0, 3)))
	if b := w.await("a", "b")["uid-b"]; !errors.Is(b.Err, kube.ErrNoAssignment) {
		t.Errorf("assignment of b: %v, want none", b.Err)
	}
	w.kubelet.change("uid-b", func(p *v1.Pod) { p.Annotations = fixture.Placed(t, "b", fixture.App(fixture.G0, 3)).Annotations })
	fixture.Eventually(t, "the assignment of b", func() error { return w.await("a", "b")["uid-b"].Err })
	w.kubelet.remove("uid-a")
	w.await("b")
}

// The agent keeps little of a pod, and enough to read the assignment, with limits, from.
func TestLittleIsKeptOfAPod(t *testing.T) {
	pod := fixture.Placed(t, "a", fixture.App(fixture.G0, 3))
	pod.Annotations["other/key"] = strings.Repeat("x", 1000)
	pod.Annotations[v1alpha1.AnnotationComputeLimit] = "50"
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", Value: "B"}}
	pod.Spec.Volumes = []v1.Volume{{Name: "v"}}
	kept := essential(pod)
	if len(kept.Annotations) != 2 || kept.ManagedFields != nil || kept.Spec.Containers[0].Env != nil || kept.Spec.Volumes != nil {
		t.Errorf("kept %+v", kept)
	}
	a, err := kube.AssignmentOf(pod)
	b, kerr := kube.AssignmentOf(kept)
	if err != nil || kerr != nil || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("assignment %v (%v), of what is kept %v (%v)", a, err, b, kerr)
	}
}

// The kubelet does not tell that an annotation changed. A new watch does.
func TestChangesWithoutAnEventAreFound(t *testing.T) {
	w := newWatchBench(t, nil)
	w.renew = 20 * time.Millisecond
	w.kubelet.add(fixture.Unplaced("a", fixture.App(fixture.G0, 3)))
	w.start()
	w.await("a")
	w.kubelet.mu.Lock()
	w.kubelet.pods["uid-a"].Annotations = fixture.Placed(t, "a", fixture.App(fixture.G0, 3)).Annotations
	w.kubelet.mu.Unlock()
	fixture.Eventually(t, "the assignment", func() error { return w.await("a")["uid-a"].Err })
	if n := w.broken.Load(); n != 0 {
		t.Errorf("%d watches broke, want none", n)
	}
}

// While the kubelet is away the pods are those that were known, and unknown.
func TestPodsAreUnknownWhileTheKubeletIsAway(t *testing.T) {
	w := newWatchBench(t, nil)
	w.kubelet.add(fixture.Placed(t, "a", fixture.App(fixture.G0, 3)))
	w.start()
	w.await("a")
	w.kubelet.stop()
	fixture.Eventually(t, "the end of the watch", func() error {
		pods, _, err := w.Snapshot()
		if err == nil || len(pods) != 1 {
			return fmt.Errorf("%d pods, known: %v; want the one that was known, and that it may have changed", len(pods), err == nil)
		}
		return nil
	})
	w.kubelet.add(fixture.Placed(t, "b", fixture.App(fixture.G0, 3)))
	w.kubelet.start()
	w.await("a", "b")
}

// unwatchable is a Pods API without its watch.
type unwatchable struct{ podsapi.PodsClient }

func (unwatchable) WatchPods(context.Context, *podsapi.WatchPodsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[podsapi.WatchPodsEvent], error) {
	return nil, status.Error(codes.Unimplemented, "no watch")
}

func TestPodsAreListedWithoutAWatch(t *testing.T) {
	w := newWatchBench(t, func(c podsapi.PodsClient) podsapi.PodsClient { return unwatchable{c} })
	w.kubelet.add(fixture.Placed(t, "a", fixture.App(fixture.G0, 3)))
	w.start()
	w.await("a")
	w.kubelet.add(fixture.Placed(t, "b", fixture.App(fixture.G0, 3)))
	w.await("a", "b")
	w.kubelet.remove("uid-a")
	w.await("b")
}

func TestSIGKILLIsForeseen(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	deleted := func(at time.Duration, grace int64) *Tenant {
		when := metav1.NewTime(now.Add(at))
		pod := fixture.Placed(t, "a", fixture.App(fixture.G0, 3))
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &when, &grace
		return &Tenant{Pod: pod}
	}
	ended := func(reason string, runs bool) *Tenant {
		pod := fixture.Placed(t, "a", fixture.App(fixture.G0, 3))
		pod.Spec.TerminationGracePeriodSeconds = new(int64)
		*pod.Spec.TerminationGracePeriodSeconds = 20
		pod.Status.Phase, pod.Status.Reason = v1.PodFailed, reason
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main"}}
		if runs {
			pod.Status.ContainerStatuses[0].State.Running = &v1.ContainerStateRunning{}
		}
		return &Tenant{Pod: pod}
	}
	going := func(kill time.Duration, t *Tenant) *Tenant {
		t.Kill = now.Add(kill)
		return t
	}
	alive := &Tenant{Pod: fixture.Placed(t, "a", fixture.App(fixture.G0, 3))}
	const never = -1
	for _, c := range []struct {
		name    string
		pod     *Tenant
		before  *Tenant
		live    bool
		seconds int
	}{
		{"lives", alive, nil, true, never},
		{"deleted before our eyes", deleted(30*time.Second, 30), alive, true, 30},
		{"our clock is an hour ahead: the kubelet counts from when it learns", deleted(-time.Hour, 30), alive, true, 30},
		{"our clock is an hour behind", deleted(time.Hour, 30), alive, true, 30},
		{"found half way", deleted(12*time.Second, 30), nil, false, 12},
		{"found late", deleted(-12*time.Second, 30), nil, false, 0},
		{"found, and the clock of the server is ahead", deleted(time.Hour, 30), nil, false, 30},
		{"told again", deleted(30*time.Second, 30), going(7*time.Second, deleted(30*time.Second, 30)), true, 7},
		{"found again", deleted(30*time.Second, 30), going(7*time.Second, deleted(30*time.Second, 30)), false, 7},
		{"deleted again with less grace", deleted(5*time.Second, 5), going(20*time.Second, deleted(30*time.Second, 30)), true, 5},
		{"deleted again with less grace, late", deleted(5*time.Second, 5), going(3*time.Second, deleted(30*time.Second, 30)), true, 3},
		{"no grace", deleted(0, 0), alive, true, 0},
		{"evicted", ended("Evicted", true), alive, true, 0},
		{"the node shuts down", ended("Terminated", true), alive, true, 20},
		{"ended", ended("", false), alive, true, never},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Tenant{Pod: c.pod.Pod}
			p.leave(c.before, c.live, now)
			want := time.Time{}
			if c.seconds != never {
				want = now.Add(time.Duration(c.seconds) * time.Second)
			}
			if !p.Kill.Equal(want) {
				t.Errorf("killed at %v, want %v", p.Kill, want)
			}
		})
	}
}
