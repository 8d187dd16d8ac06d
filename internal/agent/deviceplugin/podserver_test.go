package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// podsAtServer is an API server with the pods of a node, whose watch can lag behind.
type podsAtServer struct {
	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
	// err answers every request.
	err error
	// lags keeps the events back.
	lags    bool
	watches []*watch.FakeWatcher
	lists   int
	options metav1.ListOptions
}

func (s *podsAtServer) List(_ context.Context, o metav1.ListOptions) (*v1.PodList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	s.options = o
	if s.err != nil {
		return nil, s.err
	}
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for _, p := range s.pods {
		list.Items = append(list.Items, *p.DeepCopy())
	}
	return list, nil
}

func (s *podsAtServer) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if o.ResourceVersion != "7" || o.FieldSelector != "spec.nodeName="+fixture.Node {
		return nil, fmt.Errorf("unexpected watch %+v", o)
	}
	w := watch.NewFakeWithChanSize(100, false)
	s.watches = append(s.watches, w)
	return w, nil
}

// put changes pods, and tells so unless the watch lags.
func (s *podsAtServer) put(pods ...*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pods {
		s.pods[p.UID] = p.DeepCopy()
		s.event(watch.Modified, p)
	}
}

func (s *podsAtServer) remove(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, p.UID)
	s.event(watch.Deleted, p)
}

func (s *podsAtServer) event(kind watch.EventType, p *v1.Pod) {
	for _, w := range s.watches {
		if !s.lags && !w.IsStopped() {
			w.Action(kind, p.DeepCopy())
		}
	}
}

// set makes the API server answer every request with an error, nil for none, and lag.
func (s *podsAtServer) set(err error, lags bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.lags = err, lags
	for _, w := range s.watches {
		if err != nil && !w.IsStopped() {
			w.Stop()
		}
	}
}

// newOldBench is a node whose kubelet does not serve the Pods API, with an agent that may ask the API server.
func newOldBench(t *testing.T) (*bench, *podsAtServer) {
	t.Helper()
	b := newBenchWith(t, &kubelet{old: true})
	s := &podsAtServer{pods: map[types.UID]*v1.Pod{}}
	b.options = func(o *Options) { o.Pods = s }
	b.api()
	return b, s
}

// awaitKnown waits until the agent was told exactly these pods.
func (b *bench) awaitKnown(a *Agent, names ...string) {
	b.t.Helper()
	fixture.Eventually(b.t, "pods", func() error {
		pods, _, err := a.podWatch.Snapshot()
		if err != nil {
			return err
		}
		have := make([]string, 0, len(pods))
		for _, p := range pods {
			have = append(have, p.Pod.Name)
		}
		slices.Sort(have)
		if fmt.Sprint(have) != fmt.Sprint(names) {
			return fmt.Errorf("have %v, want %v", have, names)
		}
		return nil
	})
}

// With a kubelet that does not serve the Pods API, all goes on by the API server, and the agent says so.
func TestPodsFromTheAPIServer(t *testing.T) {
	b, s := newOldBench(t)
	a := b.run()
	b.awaitReady(metav1.ConditionTrue, v1alpha1.ReadyServing)
	b.awaitCondition(v1alpha1.ConditionPodsKnown, v1alpha1.PodsFromServer)
	b.awaitMetric(`tandem_agent_pod_source{source="apiserver"}`, "1")
	b.awaitMetric(`tandem_agent_pod_source{source="kubelet"}`, "0")
	pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
	s.put(pod)
	b.awaitKnown(a, "train")
	b.kubelet.admit(pod)
	must.OK(t, b.kubelet.begin(pod, "main"))
	if got := b.visible(pod, "main"); got != fixture.G1 {
		t.Errorf("the container sees %q, want %q", got, fixture.G1)
	}
	if want := "spec.nodeName=" + fixture.Node; s.options.FieldSelector != want {
		t.Errorf("the agent asks for pods by %q, want %q", s.options.FieldSelector, want)
	}
	b.awaitMetric(`tandem_agent_slots{device="`+fixture.G1+`",state="held"}`, "3")
	b.awaitMetric("tandem_agent_assignment_drift", "0")
	b.kubelet.remove(string(pod.UID))
	s.remove(pod)
	fixture.Eventually(t, "the end of the spec", func() error { _, err := b.spec(pod, "main"); return absent(err) })
}

// A watch that lags behind keeps no container from its share, and gives none a share that is not its own.
func TestALaggingWatchMisleadsNobody(t *testing.T) {
	start := func(t *testing.T) (*bench, *podsAtServer) {
		b, s := newOldBench(t)
		b.timing.grace = time.Hour // the sweep must not take the pod for gone while the watch lags
		return b, s
	}
	t.Run("a pod that it has not told", func(t *testing.T) {
		b, s := start(t)
		b.awaitKnown(b.run())
		s.set(nil, true)
		pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
		s.put(pod)
		b.kubelet.admit(pod)
		must.OK(t, b.kubelet.begin(pod, "main"))
		if got := b.visible(pod, "main"); got != fixture.G1 {
			t.Errorf("the container sees %q, want %q", got, fixture.G1)
		}
	})
	t.Run("an assignment that it has not told", func(t *testing.T) {
		b, s := start(t)
		pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
		s.put(fixture.Unplaced("train", fixture.App(fixture.G1, 3)))
		b.awaitKnown(b.run(), "train")
		s.set(nil, true)
		s.put(pod)
		b.kubelet.admit(pod)
		must.OK(t, b.kubelet.begin(pod, "main"))
	})
	t.Run("a pod that was replaced by another of its name", func(t *testing.T) {
		b, s := start(t)
		b.timing.patience = 2 * time.Second // of which a busy machine needs a part
		pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
		another := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
		another.UID = "another"
		s.put(another)
		b.awaitKnown(b.run(), "train")
		b.kubelet.admit(pod)
		wantRefusal(t, b.kubelet.begin(pod, "main"), "which does not run on this node")
	})
	t.Run("a pod without an assignment", func(t *testing.T) {
		b, s := start(t)
		pod := fixture.Unplaced("train", fixture.App(fixture.G1, 3))
		s.put(pod)
		b.awaitKnown(b.run(), "train")
		b.kubelet.admit(pod)
		wantRefusal(t, b.kubelet.begin(pod, "main"), "no GPU was assigned")
	})
	t.Run("the end of a pod whose share another has", func(t *testing.T) {
		b, s := start(t)
		old, next := fixture.Placed(t, "old", fixture.App(fixture.G1, 8)), fixture.Placed(t, "next", fixture.App(fixture.G1, 8))
		s.put(old)
		a := b.run()
		b.awaitKnown(a, "old")
		b.kubelet.admit(old)
		must.OK(t, b.kubelet.begin(old, "main"))
		s.set(nil, true)
		b.kubelet.remove(string(old.UID))
		s.remove(old)
		s.put(next)
		b.kubelet.admit(next)
		must.OK(t, b.kubelet.begin(next, "main"))
		b.awaitKnown(a, "old")
	})
}

func wantRefusal(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("the answer is %v, want a refusal with %q", err, part)
	}
}

// The kubelet gives the slots of a pod that has ended to the next before the API server knows of the end.
func TestStartWaitsForTheEndOfAnotherPod(t *testing.T) {
	b, s := newOldBench(t)
	old, next := fixture.Placed(t, "old", fixture.App(fixture.G1, 8)), fixture.Placed(t, "next", fixture.App(fixture.G1, 8))
	s.put(old, next)
	b.awaitKnown(b.run(), "next", "old")
	b.kubelet.admit(old)
	ids := idsOf(b.kubelet.entry(string(old.UID), "main").DeviceIDs)
	b.kubelet.give(next, "main", ids)
	answer := make(chan error, 1)
	go func() { answer <- b.kubelet.begin(next, "main") }()
	fixture.Eventually(t, "doubt", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lists < 3 {
			return errors.New("the API server was not asked again")
		}
		return nil
	})
	select {
	case err := <-answer:
		t.Fatalf("the answer came before the end of the other pod: %v", err)
	default:
	}
	old = old.DeepCopy()
	old.Status.Phase = v1.PodSucceeded
	s.put(old)
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// While the API server is away, containers of pods that the agent knows start again; others wait for it.
func TestContainersRestartWithoutTheAPIServer(t *testing.T) {
	b, s := newOldBench(t)
	b.timing.patience = 2 * time.Second // of which a busy machine needs a part
	pod, old := fixture.Placed(t, "train", fixture.App(fixture.G1, 3)), fixture.Placed(t, "old", fixture.App(fixture.G1, 3))
	old.Status.Phase = v1.PodFailed
	s.put(pod, old)
	a := b.run()
	b.awaitKnown(a, "old", "train")
	b.kubelet.admit(pod)
	b.kubelet.give(old, "main", idsOf(b.kubelet.entry(string(pod.UID), "main").DeviceIDs))
	s.set(errors.New("connection refused"), false)
	for range 2 {
		must.OK(t, b.kubelet.begin(pod, "main"))
	}
	late := fixture.Placed(t, "late", fixture.App(fixture.G0, 3))
	b.kubelet.admit(late)
	wantRefusal(t, b.kubelet.begin(late, "main"), "read the pods of this node from the API server: connection refused")
	s.set(nil, false)
	s.put(late)
	b.begins("the other pod once the API server is back", late)
	b.awaitKnown(a, "late", "old", "train")
}

// Without the permission the node takes no pods, and says what to add.
func TestMissingPermissionIsNamed(t *testing.T) {
	b, s := newOldBench(t)
	s.set(apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("no")), false)
	a := b.launch()
	b.kubelet.awaitSlots(20, 0)
	b.awaitReady(metav1.ConditionFalse, v1alpha1.ReadyPodsUnknown)
	c := b.awaitCondition(v1alpha1.ConditionPodsKnown, v1alpha1.PodsUnknown)
	if want := "add deploy/components/pods-from-apiserver"; !strings.Contains(c.Message, want) {
		t.Errorf("message %q, want it to say %q", c.Message, want)
	}
	if err := a.ready(); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("readiness %v, want the reason", err)
	}
	s.set(nil, false)
	b.awaitReady(metav1.ConditionTrue, v1alpha1.ReadyServing)
	b.awaitCondition(v1alpha1.ConditionPodsKnown, v1alpha1.PodsFromServer)
}

// The source follows the kubelet: one that is upgraded serves the Pods API, one whose gate is turned off does not.
func TestTheSourceFollowsTheKubelet(t *testing.T) {
	b, s := newOldBench(t)
	a := b.run()
	b.awaitCondition(v1alpha1.ConditionPodsKnown, v1alpha1.PodsFromServer)
	restart := func(old bool) {
		b.kubelet.stop()
		b.kubelet.old = old
		b.kubelet.start()
	}
	restart(false)
	pod := fixture.Placed(t, "train", fixture.App(fixture.G1, 3))
	b.kubelet.add(pod)
	b.awaitKnown(a, "train")
	b.awaitCondition(v1alpha1.ConditionPodsKnown, v1alpha1.PodsFromKubelet)
	b.awaitMetric(`tandem_agent_pod_source{source="kubelet"}`, "1")
	restart(true)
	b.awaitCondition(v1alpha1.ConditionPodsKnown, v1alpha1.PodsFromServer)
	b.awaitKnown(a)
	s.put(pod)
	b.awaitKnown(a, "train")
}
