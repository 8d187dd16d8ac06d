package refusals

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

const words = "pod default/p, container main: the assignment does not fit beside the pods that run: no room" + kube.CreateAgain

// world is the controller at work in a bubble, with what it evicted, by name and time.
type world struct {
	*Controller
	t       *testing.T
	api     *kubefake.Clientset
	said    *events.FakeRecorder
	began   time.Time
	evicted []string
}

// start starts the controller with pods, in a bubble.
func start(t *testing.T, pods ...*v1.Pod) *world {
	t.Helper()
	w := &world{t: t, api: kubefake.NewClientset(), said: events.NewFakeRecorder(100), began: time.Now()}
	for _, p := range pods {
		must.OK(t, w.api.Tracker().Add(p))
	}
	w.api.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		name := a.(k8stesting.CreateAction).GetObject().(metav1.Object).GetName()
		w.evicted = append(w.evicted, fmt.Sprintf("%s after %v", name, time.Since(w.began).Round(time.Second)))
		return true, nil, w.api.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "default", name)
	})
	factory := informers.NewSharedInformerFactoryWithOptions(w.api, 0, informers.WithTransform((&snapshot.Condenser{}).Condense))
	w.Controller = New(Options{Informers: factory, Kube: w.api, Recorder: w.said})
	factory.StartWithContext(t.Context())
	go func() { _ = w.Start(t.Context()) }()
	return w
}

// after lets time of the bubble pass, and compares what was evicted so far.
func (w *world) after(d time.Duration, evicted ...string) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if strings.Join(w.evicted, ", ") != strings.Join(evicted, ", ") {
		w.t.Errorf("evicted %q, want %q", w.evicted, evicted)
	}
}

// events returns what was said since the last call.
func (w *world) events() (all []string) {
	for {
		select {
		case e := <-w.said.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// refused returns a pod of a ReplicaSet that the agent of n1 refuses to start.
func refused(t *testing.T, name string) *v1.Pod {
	t.Helper()
	p := fakecluster.Pod(name, 2)
	a := testkit.Assignment(t, testkit.Node(t, "n1", testkit.A100, 1), 0, "default/"+name, vgpu.Slots(2))
	a.UID, a.Containers[0].Name = vgpu.UID(p.UID), p.Spec.Containers[0].Name
	raw, err := kube.EncodeAssignment(a)
	must.OK(t, err)
	p.Annotations = map[string]string{v1alpha1.AnnotationAssignment: raw}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}}
	p.Spec.NodeName, p.Status.Phase = "n1", v1.PodPending
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
		Reason: "CreateContainerConfigError", Message: "device plugin PreStartContainer rpc failed with err: rpc error: code = FailedPrecondition desc = " + words,
	}}}}
	return p
}

// A pod that its agent refuses for two minutes is evicted once, and an event says why.
func TestRefusedPodIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, refused(t, "p"))
		w.after(patience - time.Second)
		if got := w.events(); len(got) > 0 {
			t.Errorf("said %q too early", got)
		}
		w.after(every, "p after 2m0s")
		w.after(time.Hour, "p after 2m0s")
		got := w.events()
		if len(got) != 1 || !strings.Contains(got[0], "Warning StartRefused the agent of node n1 has refused to start it for 2m0s: "+words+"; it is evicted") {
			t.Errorf("said %q", got)
		}
		if n := testutil.ToFloat64(w.evictions.WithLabelValues(resultEvicted)); n != 1 {
			t.Errorf("%v evictions are counted", n)
		}
	})
}

// Pods that stay: one that starts meanwhile, one of which a container runs, a bare one, one whose refusal ends by itself, and one without devices.
func TestPodsThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *v1.Pod)
		says   string
	}{
		"beside one that runs": {func(p *v1.Pod) {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: "side", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
		}, "it is not evicted, since a container of it has run"},
		"has run before":   {func(p *v1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 }, "it is not evicted, since a container of it has run"},
		"of a Job":         {func(p *v1.Pod) { p.OwnerReferences[0].Kind = "Job" }, "it is not evicted, since its Job may count that as a failure"},
		"bare":             {func(p *v1.Pod) { p.OwnerReferences = nil }, "it is not evicted, since nothing would make it anew"},
		"MPS is not ready": {func(p *v1.Pod) { p.Status.ContainerStatuses[0].State.Waiting.Message += " soon" }, ""},
		"bound by another": {func(p *v1.Pod) { p.Annotations = nil }, ""},
		"on its way out":   {func(p *v1.Pod) { p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"} }, ""},
		"without vGPUs":    {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := refused(t, "p")
				c.change(p)
				w := start(t, p)
				w.after(time.Hour)
				got := w.events()
				if said := len(got) == 1 && strings.Contains(got[0], c.says); said != (c.says != "") || len(got) > 1 {
					t.Errorf("said %q, want %q", got, c.says)
				}
			})
		})
	}
}

// A pod that starts before its time, and one that the informer still shows as refused, are not evicted.
func TestPodThatStartsIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, refused(t, "p"), refused(t, "q"))
		w.after(patience - time.Minute)
		p := refused(t, "p")
		p.Status.ContainerStatuses[0].State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
		must.OK(t, w.api.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), p, "default"))
		w.api.PrependReactor("get", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			q := refused(t, "q")
			q.Status.ContainerStatuses[0].State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
			return true, q, nil
		})
		w.after(time.Hour)
	})
}

// The pods of an owner that are refused at once have one cause, and are evicted together.
func TestPodsOfOneCauseAreEvictedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []*v1.Pod
		for i := range 10 {
			p := refused(t, fmt.Sprint("p", i))
			p.UID = types.UID(p.Name)
			pods = append(pods, p)
		}
		w := start(t, pods...)
		time.Sleep(patience + every)
		synctest.Wait()
		if len(w.evicted) != len(pods) {
			t.Errorf("evicted %q", w.evicted)
		}
	})
}

// The pods of an owner that are refused again and again are evicted less and less often.
func TestEvictionsOfAnOwnerBecomeRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, refused(t, "p0"))
		for i := range 5 {
			for waited := time.Duration(0); len(w.evicted) <= i && waited < 2*mostPatience; waited += every {
				time.Sleep(every)
			}
			next := refused(t, fmt.Sprint("p", i+1))
			next.UID = types.UID(next.Name)
			must.OK(t, w.api.Tracker().Add(next))
		}
		w.after(0, "p0 after 2m0s", "p1 after 6m10s", "p2 after 14m20s", "p3 after 30m30s", "p4 after 1h2m40s")
	})
}
