package notebooks

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/internal/cluster/parking"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

const parkPatch = `nb/scale [{"op":"test","path":"/spec/replicas","value":1},{"op":"replace","path":"/spec/replicas","value":0}]`

func (w *world) want(state string, scales ...string) {
	w.Helper()
	if got := w.state(); !slices.Equal(got, []string{state + " 1"}) {
		w.Errorf("state %v, want %s", got, state)
	}
	if diff := cmp.Diff(scales, w.scales); diff != "" {
		w.Errorf("scales: %s", diff)
	}
}

func (w *world) wantEvents(got []string, texts ...string) {
	w.Helper()
	if len(got) != len(texts) {
		w.Fatalf("events %q, want %q", got, texts)
	}
	for i, text := range texts {
		if !strings.Contains(got[i], text) {
			w.Errorf("event %q, want %q", got[i], text)
		}
	}
}

// A notebook that is idle since 11:10 with a limit of 60 minutes is warned at 12:00, as its notice of 10 minutes says, and parked at 12:10.
func TestParks(t *testing.T) {
	w := newWorld(t)
	w.idleFor(50 * time.Minute)
	w.wantEvents(w.pass(0), "Warning NotebookIdle no kernel, terminal or GPU has worked for 50m0s. At 2026-01-31T12:10:00Z the pod ends, and what its kernels have in memory is lost")
	w.want("Warned")
	shown := map[string]string{v1alpha1.AnnotationNotebookIdleSince: "2026-01-31T11:10:00Z", v1alpha1.AnnotationNotebookParksAt: "2026-01-31T12:10:00Z"}
	if diff := cmp.Diff(shown, w.pod().Annotations); diff != "" {
		t.Error(diff)
	}
	w.wantEvents(w.passes(9))
	w.want("Warned")
	w.wantEvents(w.pass(time.Minute), "Normal NotebookParked scaled to zero after 1h0m0s without work. A page")
	w.want("Parked", parkPatch)
	must.OK(t, w.kube.CoreV1().Pods("ns").Delete(t.Context(), "nb-0", metav1.DeleteOptions{}))
	w.wantEvents(w.passes(3))
	w.want("Parked", parkPatch)
}

// With cull the event says that it stays at zero.
func TestCulls(t *testing.T) {
	w := newWorld(t)
	w.annotate(v1alpha1.AnnotationNotebook, v1alpha1.NotebookCull)
	w.idleFor(24 * time.Hour)
	w.pass(0)
	w.wantEvents(w.passes(10), "Normal NotebookCulled scaled to zero after 1h0m0s without work. It stays there")
	w.want("Parked", parkPatch)
}

// A cell that begins while the notebook is warned keeps it, and the times that the pod showed go.
func TestWorkKeeps(t *testing.T) {
	w := newWorld(t)
	w.idleFor(50 * time.Minute)
	w.pass(0)
	w.jupyter.kernels("busy", noon.Add(-50*time.Minute)) // silent: its output moves last_activity, not its run
	w.wantEvents(w.passes(200))
	w.want("Active")
	if got := w.pod().Annotations; len(got) != 0 {
		t.Errorf("the pod shows %v", got)
	}
}

// The controller writes once what the pod shows, while it is right, and only after a quarter of the idle time.
func TestShownOnce(t *testing.T) {
	w := newWorld(t)
	w.jupyter.kernels("busy", noon)
	w.pass(0)
	w.jupyter.kernels("idle", noon)
	w.passes(14)
	if got := w.pod().Annotations; len(got) != 0 {
		t.Errorf("after 14 minutes of 60 the pod shows %v", got)
	}
	w.kube.ClearActions()
	w.passes(20)
	patches := 0
	for _, a := range w.kube.Actions() {
		if a.GetVerb() == "patch" {
			patches++
		}
	}
	if at := w.pod().Annotations[v1alpha1.AnnotationNotebookParksAt]; patches != 1 || at != "2026-01-31T13:00:00Z" {
		t.Errorf("%d patches, parks at %s", patches, at)
	}
}

// A kernel that is idle keeps its notebook where the pod's own processes use the GPU. A use that is not the pod's own says nothing.
func TestGPU(t *testing.T) {
	for name, test := range map[string]struct {
		tenant v1alpha1.GPUTenant
		want   string
	}{
		"its own use":      {v1alpha1.GPUTenant{UID: "pod", Measured: true, SMUtilizationPercent: new(int32(1))}, "Active"},
		"none":             {v1alpha1.GPUTenant{UID: "pod", Measured: true, SMUtilizationPercent: new(int32(0))}, "Warned"},
		"that of others":   {v1alpha1.GPUTenant{UID: "other", Measured: true, SMUtilizationPercent: new(int32(90))}, "Warned"},
		"an apportioned":   {v1alpha1.GPUTenant{UID: "pod", SMUtilizationPercent: new(int32(90))}, "Warned"},
		"nobody can tell":  {v1alpha1.GPUTenant{UID: "pod", Measured: true}, "Warned"},
		"no such GPU node": {v1alpha1.GPUTenant{}, "Warned"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			node.Status.Devices = []v1alpha1.GPUDevice{{}, {Tenants: []v1alpha1.GPUTenant{test.tenant}}}
			if test.tenant.UID == "" {
				node.Name = "n2"
			}
			w := newWorld(t, node)
			w.idleFor(time.Hour)
			w.pass(0)
			w.want(test.want)
		})
	}
}

// A server that does not tell what works keeps its notebook for ever, and an event says so once. Answers again, it has its notice left.
func TestUnreachable(t *testing.T) {
	big := "[" + strings.Repeat(" ", mostAnswer) + "]"
	for name, test := range map[string]struct {
		spoil  func(w *world)
		result string
		told   string
	}{
		"it ends":            {func(w *world) { w.jupyter.Close() }, lookUnreachable, "ask the Jupyter server"},
		"another token":      {func(w *world) { w.jupyter.fails("/base/api/kernels", 403) }, lookRefused, "the token is not that of the server"},
		"no token":           {func(w *world) { w.jupyter.fails("/base/api/kernels", 401) }, lookRefused, "the token is not that of the server"},
		"another path":       {func(w *world) { w.jupyter.fails("/base/api/kernels", 404) }, lookMalformed, "the port or the path is not that of a Jupyter server"},
		"it fails":           {func(w *world) { w.jupyter.fails("/base/api/kernels", 500) }, lookMalformed, "500"},
		"no list":            {func(w *world) { w.jupyter.says("/base/api/kernels", "{}") }, lookMalformed, "no list"},
		"null":               {func(w *world) { w.jupyter.says("/base/api/kernels", "null") }, lookMalformed, "no list"},
		"nothing":            {func(w *world) { w.jupyter.says("/base/api/kernels", "") }, lookMalformed, "no list"},
		"too long":           {func(w *world) { w.jupyter.says("/base/api/kernels", big) }, lookMalformed, "more than 1048576 bytes"},
		"no time":            {func(w *world) { w.jupyter.says("/base/api/kernels", `[{"execution_state": "idle"}]`) }, lookMalformed, "last_activity"},
		"no state":           {func(w *world) { w.jupyter.says("/base/api/kernels", `[{"last_activity": "2026-01-31T09:00:00Z"}]`) }, lookMalformed, "execution_state"},
		"a strange terminal": {func(w *world) { w.jupyter.says("/base/api/terminals", `[{"last_activity": "yesterday"}]`) }, lookMalformed, "terminal"},
		"terminals fail":     {func(w *world) { w.jupyter.fails("/base/api/terminals", 500) }, lookMalformed, "terminals answers 500"},
		"a redirect": {func(w *world) {
			w.jupyter.says("/evil", "[]")
			w.jupyter.answer("/base/api/kernels", func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/evil", http.StatusFound) })
		}, lookMalformed, "302"},
		"the pod is not ready": {func(w *world) { w.change(func(p *v1.Pod) { p.Status.Conditions[0].Status = v1.ConditionFalse }) }, lookNotReady, "is not ready"},
		"no Secret":            {func(w *world) { w.annotate(v1alpha1.AnnotationNotebookToken, "absent") }, lookNoToken, "Secret absent, which tandem-gpu.io/notebook-token names, does not exist"},
		"two pods": {func(w *world) {
			p := notebookPod()
			p.Name, p.UID = "nb-1", "second"
			must.OK(w.T, w.kube.Tracker().Add(p))
		}, lookNotReady, "has the pods nb-0 and nb-1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.idleFor(time.Hour)
			w.pass(0)
			test.spoil(w)
			w.wantEvents(w.passes(2)) // a server that is busy for a while is no problem
			told := w.passes(98)
			w.wantEvents(told, "Warning NotebookUnreachable")
			if !strings.Contains(told[0], test.told) {
				t.Errorf("%s, want %s", told[0], test.told)
			}
			if name == "two pods" { // neither is the one that was idle
				w.want("Waking")
			} else {
				w.want("Warned")
			}
			if n := value(t, w.metrics.looks.WithLabelValues(test.result)); n != 100 {
				t.Errorf("%v looks are %s", n, test.result)
			}
		})
	}
}

// The token is that of the owner's Secret, and goes to the pod alone.
func TestToken(t *testing.T) {
	w := newWorld(t)
	w.annotate(v1alpha1.AnnotationNotebookToken, "jupyter/key")
	must.OK(t, w.kube.Tracker().Add(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "jupyter"}, Data: map[string][]byte{"key": []byte("s3cret"), "token": []byte("not\nlegal")}}))
	w.pass(0)
	w.want("Idle")
	if diff := cmp.Diff([]string{"token s3cret", "token s3cret"}, w.jupyter.tokens); diff != "" {
		t.Error(diff)
	}
	for _, key := range []string{"jupyter", "jupyter/absent"} {
		w.annotate(v1alpha1.AnnotationNotebookToken, key)
		w.restart()
		w.wantEvents(w.passes(3), "is no token: legal are")
	}
	w.kube.PrependReactor("get", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "jupyter", errors.New("no"))
	})
	w.restart()
	w.wantEvents(w.passes(3), "the controller may not get Secret jupyter")
	if len(w.jupyter.tokens) != 2 {
		t.Errorf("the server was asked without a token: %v", w.jupyter.tokens)
	}
}

// Without kernels and terminals the time since the pod became ready counts, and a terminal counts as a kernel does.
func TestWithoutKernels(t *testing.T) {
	w := newWorld(t)
	w.idleFor(70 * time.Minute)
	w.jupyter.says("/base/api/kernels", "[]")
	w.pass(0) // the pod is ready since 11:00
	w.want("Warned")
	w.jupyter.says("/base/api/terminals", `[{"name": "1", "last_activity": "2026-01-31T12:00:30.5Z"}]`)
	w.pass(time.Minute)
	w.want("Idle")
}

// A pod that never starts is parked as well, after the same time, and its owner is told why.
func TestWaking(t *testing.T) {
	w := newWorld(t)
	w.change(func(p *v1.Pod) { p.Status = v1.PodStatus{Phase: v1.PodPending} })
	w.pass(0)
	w.want("Waking")
	w.wantEvents(w.passes(61), "Warning NotebookIdle its pod has not started for 50m0s. At 2026-01-31T13:00:00Z", "Normal NotebookParked")
	w.want("Parked", parkPatch)
}

// A workload that cannot be parked is left alone. An event says once why, and again where there is another reason.
func TestInvalid(t *testing.T) {
	w := newWorld(t)
	w.idleFor(time.Hour)
	w.annotate(v1alpha1.AnnotationNotebookIdle, "1s")
	w.wantEvents(w.passes(100), "Warning NotebookInvalid metadata.annotations[tandem-gpu.io/notebook-idle]: \"1s\" is not legal, legal is a duration from 1m to 168h")
	w.want("Invalid")
	s := notebookSet(w.jupyter.port(), "60m")
	s.Spec.Replicas = new(int32(2))
	w.put(s)
	w.wantEvents(w.passes(100), "spec.replicas: a notebook has one pod")
	w.put(notebookSet(w.jupyter.port(), "60m"))
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h"}}
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: "StatefulSet", Name: "nb"}
	store := w.factory.Autoscaling().V2().HorizontalPodAutoscalers().Informer().GetStore()
	must.OK(t, store.Add(h))
	w.wantEvents(w.passes(100), "HorizontalPodAutoscaler h scales StatefulSet ns/nb")
	w.want("Invalid")
	must.OK(t, store.Delete(h))
	w.wantEvents(w.pass(time.Minute))
	w.want("Idle") // what the pod shows is hours old
}

// The controller no longer looks at a notebook whose owner withdraws, or that is being deleted.
func TestWithdrawn(t *testing.T) {
	for name, change := range map[string]func(m *metav1.ObjectMeta){
		"withdrawn": func(m *metav1.ObjectMeta) { m.Annotations = nil },
		"deleted":   func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &metav1.Time{Time: noon} },
	} {
		w := newWorld(t)
		w.idleFor(time.Hour)
		w.pass(0)
		s := w.set()
		change(&s.ObjectMeta)
		w.put(s)
		w.wantEvents(w.passes(100))
		if len(w.state()) != 0 || len(w.scales) != 0 || len(w.memory) != 0 {
			t.Errorf("%s: %v %v %v", name, w.state(), w.scales, w.memory)
		}
	}
}

// A size that changed in between is no failure; a patch that fails is tried again.
func TestScaleFails(t *testing.T) {
	w := newWorld(t)
	w.idleFor(time.Hour)
	w.pass(0)
	w.scaleErr = apierrors.NewInvalid(schema.GroupKind{Kind: "Scale"}, "nb", nil)
	w.wantEvents(w.passes(10))
	w.scaleErr = errors.New("gone")
	w.at = w.at.Add(time.Minute)
	if err := w.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "StatefulSet ns/nb: scale StatefulSet ns/nb: gone") {
		t.Error(err)
	}
	w.want("Warned", parkPatch, parkPatch)
	w.scaleErr = nil
	w.wantEvents(w.pass(time.Minute), "NotebookParked")
	for result, want := range map[string]float64{patchDone: 1, patchStale: 1, patchFailed: 1} {
		if n := value(t, w.metrics.parks.WithLabelValues(result)); n != want {
			t.Errorf("%v patches are %s", n, result)
		}
	}
}

// A notebook that was invalid for a while is warned anew: its owner may have meant another idle time.
func TestInvalidForAWhile(t *testing.T) {
	w := newWorld(t)
	w.idleFor(time.Hour)
	w.wantEvents(w.pass(0), "NotebookIdle")
	w.annotate(v1alpha1.AnnotationNotebookIdle, "1s")
	w.wantEvents(w.passes(5), "NotebookInvalid")
	w.annotate(v1alpha1.AnnotationNotebookIdle, "60m")
	w.wantEvents(w.pass(time.Minute), "NotebookIdle")
	w.want("Warned")
}

// An API server that does not answer keeps a notebook, as a server does.
func TestAPIFails(t *testing.T) {
	w := newWorld(t)
	w.idleFor(time.Hour)
	w.pass(0)
	w.kube.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("gone") })
	for range 100 {
		w.at = w.at.Add(time.Minute)
		if err := w.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "list its pods: gone") {
			t.Fatal(err)
		}
	}
	w.want("Warned")
}

// The notice of a notebook with a short idle time is half of that.
func TestShortNotice(t *testing.T) {
	w := newWorld(t)
	w.annotate(v1alpha1.AnnotationNotebookIdle, "4m")
	w.jupyter.kernels("idle", noon)
	w.pass(0)
	w.wantEvents(w.passes(2), "NotebookIdle no kernel, terminal or GPU has worked for 2m0s. At 2026-01-31T12:04:00Z")
	w.wantEvents(w.passes(2), "NotebookParked")
}

// gpuNode is the node of the pod, with the pod's own use of its GPU.
func gpuNode(use int32) *v1alpha1.GPUNode {
	n := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.Devices = []v1alpha1.GPUDevice{{Tenants: []v1alpha1.GPUTenant{{UID: "pod", Measured: true, SMUtilizationPercent: new(use)}}}}
	return n
}

// A program that a kernel started has used the GPU until a minute ago, and the kernel is idle for five hours. A controller that starts then gives
// the notebook its whole idle time from now on.
func TestRestartForgetsNoGPU(t *testing.T) {
	w := newWorld(t, gpuNode(50))
	w.jupyter.kernels("idle", noon.Add(-5*time.Hour))
	w.pass(0)
	w.want("Active")
	w.options.GPUNodes = gpuNodes(t, gpuNode(0))
	w.wantEvents(w.passes(1))
	w.restart()
	w.wantEvents(w.passes(50))
	w.want("Idle")
	w.wantEvents(w.passes(1), "no kernel, terminal or GPU has worked for 50m0s. At 2026-01-31T13:02:00Z the pod ends")
	w.wantEvents(w.passes(10), "scaled to zero after 1h0m0s without work")
	w.want("Parked", parkPatch)
}

// Controllers that end every 12 minutes park a notebook still: each continues from what the pod shows, less four minutes that it may not be sure
// of, and the last one lives longer than the notice.
func TestRestartsPark(t *testing.T) {
	w := newWorld(t)
	w.jupyter.kernels("idle", noon.Add(-5*time.Hour))
	for range 20 {
		w.restart()
		w.passes(12)
		if len(w.scales) > 0 {
			break
		}
	}
	w.want("Parked", parkPatch)
	if took := w.at.Sub(noon); took < time.Hour || took > 2*time.Hour {
		t.Errorf("parked after %v", took)
	}
}

// The times that a pod shows are worth nothing where the end is long over or they are no times. They go while the server does not answer.
func TestShownIsNoLonger(t *testing.T) {
	for name, test := range map[string]struct{ since, ends string }{
		"last year":  {"2025-01-31T11:00:00Z", "2025-01-31T12:00:00Z"},
		"no time":    {"yesterday", "2026-01-31T12:10:00Z"},
		"no end":     {"2026-01-31T11:00:00Z", "soon"},
		"tomorrow":   {"2026-02-01T11:00:00Z", "2026-02-01T12:00:00Z"},
		"both empty": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.idleFor(time.Hour)
			w.change(func(p *v1.Pod) {
				p.Annotations = map[string]string{v1alpha1.AnnotationNotebookIdleSince: test.since, v1alpha1.AnnotationNotebookParksAt: test.ends}
			})
			w.pass(0)
			w.want("Idle")
			shown := map[string]string{v1alpha1.AnnotationNotebookIdleSince: "2026-01-31T12:00:00Z", v1alpha1.AnnotationNotebookParksAt: "2026-01-31T13:00:00Z"}
			if diff := cmp.Diff(shown, w.pod().Annotations); diff != "" {
				t.Error(diff)
			}
			w.jupyter.fails("/base/api/kernels", 500)
			w.passes(3)
			if got := w.pod().Annotations; len(got) != 0 {
				t.Errorf("the pod shows %v of a server that does not answer", got)
			}
		})
	}
}

// A notebook that another object made, as Kubeflow's Notebook does, is never parked: that object would start it again, and the memory of its kernels
// would be lost for nothing.
func TestOwnedNotebook(t *testing.T) {
	w := newWorld(t)
	w.idleFor(time.Hour)
	s := w.set()
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubeflow.org/v1", Kind: "Notebook", Name: "zoe", Controller: new(true)}}
	w.put(s)
	w.wantEvents(w.passes(400), "Warning NotebookInvalid metadata.ownerReferences: StatefulSet ns/nb belongs to Notebook zoe, which writes its replicas")
	w.want("Invalid")
}

// Somebody starts a notebook again as soon as it is parked, without a page that was opened. After the second time it is left alone for half an hour, then for longer: an
// event tells its owner why, once each time.
func TestAnotherWriter(t *testing.T) {
	w := newWorld(t)
	w.annotate(v1alpha1.AnnotationNotebookIdle, "1m")
	w.jupyter.kernels("idle", noon)
	var parks []time.Time
	var told []string
	for range 12 * 60 {
		w.at = w.at.Add(time.Minute)
		must.OK(t, w.Pass(t.Context()))
		for _, e := range w.events() {
			if strings.Contains(e, reasonInvalid) {
				told = append(told, e)
			}
		}
		if *w.set().Spec.Replicas == 0 {
			parks = append(parks, w.at)
			w.start("kubectl")
		}
	}
	for i := 3; i < len(parks); i++ {
		if parks[i].Sub(parks[i-3]) < time.Hour {
			t.Errorf("the notebook was parked four times from %v to %v", parks[i-3], parks[i])
		}
	}
	contests := len(parks) - 1 // from the second one on
	if contests < 3 || len(told) != contests || value(t, w.metrics.contests) != float64(contests) {
		t.Errorf("%d parks, %v contests, events %q", len(parks), value(t, w.metrics.contests), told)
	}
	for _, e := range told {
		if !strings.Contains(e, "Warning NotebookInvalid StatefulSet ns/nb was changed from 1 to 0 replicas, and somebody changed that again soon") {
			t.Error(e)
		}
	}
}

// An owner who comes back soon, again and again, by the activator is no other writer: the notebook is parked each time, also by a controller that starts meanwhile.
func TestOwnerComesBack(t *testing.T) {
	w := newWorld(t)
	w.annotate(v1alpha1.AnnotationNotebookIdle, "1m")
	w.jupyter.kernels("idle", noon)
	parked := 0
	for minute := range 60 {
		w.at = w.at.Add(time.Minute)
		must.OK(t, w.Pass(t.Context()))
		for _, e := range w.events() {
			if strings.Contains(e, reasonInvalid) {
				t.Fatal(e)
			}
		}
		if *w.set().Spec.Replicas == 0 {
			parked++
			w.start(parking.Activator)
		}
		if minute == 30 {
			w.restart()
		}
	}
	if n := value(t, w.metrics.contests); parked < 10 || n != 0 {
		t.Errorf("the notebook was parked %d times in an hour, %v contests", parked, n)
	}
}

// A notebook whose container ends each time that it starts is parked, after the same time as one that never starts.
func TestCrashLoop(t *testing.T) {
	w := newWorld(t)
	w.change(func(p *v1.Pod) {
		p.Status.Conditions[0].Status = v1.ConditionFalse
		p.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: 5, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	})
	w.pass(0)
	w.wantEvents(w.passes(61), "Warning NotebookIdle its container has ended each time that it started for 50m0s. At 2026-01-31T13:00:00Z", "Normal NotebookParked")
	w.want("Parked", parkPatch)
}
