package deviceplugin

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

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// watchBench follows a scripted kubelet's pods.
type watchBench struct {
	*podWatch
	t       *testing.T
	kubelet *kubelet
	broken  atomic.Int32
}

func newWatchBench(t *testing.T, wrap func(podsapi.PodsClient) podsapi.PodsClient) *watchBench {
	t.Helper()
	b := newBench(t)
	conn, err := dialKubelet(b.kubelet.podsSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w := &watchBench{t: t, kubelet: b.kubelet}
	client := podsapi.NewPodsClient(conn)
	if wrap != nil {
		client = wrap(client)
	}
	w.podWatch = newPodWatch(client, func() { w.broken.Add(1) }, func() {})
	w.retry, w.poll, w.renew = time.Millisecond, time.Millisecond, time.Hour
	return w
}

func (w *watchBench) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended })
}

// await waits until exactly these pods are known.
func (w *watchBench) await(names ...string) map[types.UID]*tenant {
	return awaitPods(w.t, w.podWatch, names)
}

// awaitPods waits until exactly these pods are known, and returns them.
func awaitPods(t *testing.T, w *podWatch, names []string) map[types.UID]*tenant {
	t.Helper()
	var pods map[types.UID]*tenant
	eventually(t, "pods", func() error {
		var err error
		if pods, _, err = w.snapshot(); err != nil {
			return err
		}
		var have []string
		for _, p := range byName(pods) {
			have = append(have, p.pod.Name)
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
	if _, _, err := w.snapshot(); !errors.Is(err, errPodsUnknown) {
		t.Errorf("before the first answer: %v, want that the pods are unknown", err)
	}
	plain := unplaced("plain")
	plain.Spec.Containers = []v1.Container{{Name: "main"}}
	w.kubelet.add(placed(t, "a", app(g0, 3)), plain)
	w.start()
	pods := w.await("a")
	if a := pods["uid-a"]; a.err != nil || len(a.assignment.Containers) != 1 {
		t.Errorf("assignment %+v (%v)", a.assignment, a.err)
	}
	w.kubelet.add(unplaced("b", app(g0, 3)))
	if b := w.await("a", "b")["uid-b"]; !errors.Is(b.err, kube.ErrNoAssignment) {
		t.Errorf("assignment of b: %v, want none", b.err)
	}
	w.kubelet.change("uid-b", func(p *v1.Pod) { p.Annotations = placed(t, "b", app(g0, 3)).Annotations })
	eventually(t, "the assignment of b", func() error { return w.await("a", "b")["uid-b"].err })
	w.kubelet.remove("uid-a")
	w.await("b")
}

// What the agent keeps of a pod is little, and enough to read the assignment, with limits, from.
func TestLittleIsKeptOfAPod(t *testing.T) {
	pod := placed(t, "a", app(g0, 3))
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
	w.kubelet.add(unplaced("a", app(g0, 3)))
	w.start()
	w.await("a")
	w.kubelet.mu.Lock()
	w.kubelet.pods["uid-a"].Annotations = placed(t, "a", app(g0, 3)).Annotations
	w.kubelet.mu.Unlock()
	eventually(t, "the assignment", func() error { return w.await("a")["uid-a"].err })
	if n := w.broken.Load(); n != 0 {
		t.Errorf("%d watches broke, want none", n)
	}
}

// While the kubelet is away the pods are those that were known, and unknown.
func TestPodsAreUnknownWhileTheKubeletIsAway(t *testing.T) {
	w := newWatchBench(t, nil)
	w.kubelet.add(placed(t, "a", app(g0, 3)))
	w.start()
	w.await("a")
	w.kubelet.stop()
	eventually(t, "the end of the watch", func() error {
		pods, _, err := w.snapshot()
		if err == nil || len(pods) != 1 {
			return fmt.Errorf("%d pods, known: %v; want the one that was known, and that it may have changed", len(pods), err == nil)
		}
		return nil
	})
	w.kubelet.add(placed(t, "b", app(g0, 3)))
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
	w.kubelet.add(placed(t, "a", app(g0, 3)))
	w.start()
	w.await("a")
	w.kubelet.add(placed(t, "b", app(g0, 3)))
	w.await("a", "b")
	w.kubelet.remove("uid-a")
	w.await("b")
}

func TestKillIsForeseen(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	deleted := func(at time.Duration, grace int64) *tenant {
		when := metav1.NewTime(now.Add(at))
		pod := placed(t, "a", app(g0, 3))
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &when, &grace
		return &tenant{pod: pod}
	}
	ended := func(reason string, runs bool) *tenant {
		pod := placed(t, "a", app(g0, 3))
		pod.Spec.TerminationGracePeriodSeconds = new(int64)
		*pod.Spec.TerminationGracePeriodSeconds = 20
		pod.Status.Phase, pod.Status.Reason = v1.PodFailed, reason
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main"}}
		if runs {
			pod.Status.ContainerStatuses[0].State.Running = &v1.ContainerStateRunning{}
		}
		return &tenant{pod: pod}
	}
	going := func(kill time.Duration, t *tenant) *tenant {
		t.kill = now.Add(kill)
		return t
	}
	alive := &tenant{pod: placed(t, "a", app(g0, 3))}
	const never = -1
	for _, c := range []struct {
		name    string
		pod     *tenant
		before  *tenant
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
			p := &tenant{pod: c.pod.pod}
			p.leave(c.before, c.live, now)
			want := time.Time{}
			if c.seconds != never {
				want = now.Add(time.Duration(c.seconds) * time.Second)
			}
			if !p.kill.Equal(want) {
				t.Errorf("killed at %v, want %v", p.kill, want)
			}
		})
	}
}
