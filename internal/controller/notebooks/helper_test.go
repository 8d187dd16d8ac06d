package notebooks

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// noon is the time of the first pass.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// jupyter is a server that says what the test wants.
type jupyter struct {
	*httptest.Server
	mu sync.Mutex
	// answers by path; a path without one is not found.
	answers map[string]http.HandlerFunc
	// tokens are the Authorization headers that came.
	tokens []string
}

func startJupyter(t *testing.T) *jupyter {
	j := &jupyter{answers: map[string]http.HandlerFunc{}}
	j.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.tokens = append(j.tokens, r.Header.Get("Authorization"))
		if answer := j.answers[r.URL.Path]; answer != nil {
			answer(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(j.Close)
	return j
}

// says has a path answer a text from now on.
func (j *jupyter) says(path, text string) {
	j.answer(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, text) })
}

// fails has a path answer a status from now on.
func (j *jupyter) fails(path string, status int) {
	j.answer(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

func (j *jupyter) answer(path string, answer http.HandlerFunc) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answers[path] = answer
}

// kernels has the server of the world have one kernel.
func (j *jupyter) kernels(state string, activity time.Time) {
	j.says("/base/api/kernels", fmt.Sprintf(`[{"id": "1", "name": "python3", "last_activity": %q, "execution_state": %q, "connections": 0}]`, activity.Format(time.RFC3339Nano), state))
}

func (j *jupyter) port() string {
	_, port, _ := net.SplitHostPort(j.Listener.Addr().String())
	return port
}

// world is an API server with the notebook nb, whose pod is ready since 11:00, and a Controller with an interval of a minute and a notice of
// ten.
type world struct {
	*testing.T
	*Controller
	at      time.Time
	jupyter *jupyter
	kube    *kubefake.Clientset
	factory informers.SharedInformerFactory
	said    *events.FakeRecorder
	// scales are the patches of scales that came, and scaleErr is the answer to them.
	scales   []string
	scaleErr error
}

func newWorld(t *testing.T, more ...client.Object) *world {
	w := &world{T: t, at: noon, jupyter: startJupyter(t), kube: kubefake.NewClientset(), said: events.NewFakeRecorder(1000)}
	w.factory = informers.NewSharedInformerFactory(w.kube, 0)
	var err error
	w.Controller, err = New(Options{
		Informers: w.factory, Kube: w.kube, GPUNodes: gpuNodes(t, more...), Recorder: w.said,
		Every: time.Minute, Notice: 10 * time.Minute, Now: func() time.Time { return w.at },
	})
	must.OK(t, err)
	w.kube.PrependReactor("patch", "statefulsets", w.scale)
	w.put(notebookSet(w.jupyter.port(), "60m"))
	must.OK(t, w.kube.Tracker().Add(notebookPod()))
	w.jupyter.kernels("idle", noon.Add(-time.Minute))
	return w
}

// gpuNodes reads these GPUNodes.
func gpuNodes(t *testing.T, list ...client.Object) client.Reader {
	scheme := runtime.NewScheme()
	must.OK(t, v1alpha1.AddToScheme(scheme))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(list...).Build()
}

// scale notes a patch and does what it says, to the StatefulSet that the informer has.
func (w *world) scale(a k8stesting.Action) (bool, runtime.Object, error) {
	p := a.(k8stesting.PatchAction)
	w.scales = append(w.scales, fmt.Sprintf("%s/%s %s", p.GetName(), p.GetSubresource(), p.GetPatch()))
	if w.scaleErr == nil {
		s := w.set()
		s.Spec.Replicas, s.ManagedFields = new(int32(0)), nil
		w.put(s)
	}
	return true, &appsv1.StatefulSet{}, w.scaleErr
}

// notebookSet is the StatefulSet nb, which allows that it is parked.
func notebookSet(port, idle string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nb", UID: "set", Annotations: map[string]string{
			v1alpha1.AnnotationNotebook: v1alpha1.NotebookPark, v1alpha1.AnnotationNotebookIdle: idle, v1alpha1.AnnotationNotebookPort: port,
			v1alpha1.AnnotationNotebookPath: "/base",
		}},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nb"}}},
	}
}

// notebookPod is the pod of nb, on node n1.
func notebookPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "nb-0", UID: "pod", Labels: map[string]string{"app": "nb"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "nb", UID: "set", Controller: new(true)}},
		},
		Spec: v1.PodSpec{NodeName: "n1"},
		Status: v1.PodStatus{Phase: v1.PodRunning, PodIP: "127.0.0.1", Conditions: []v1.PodCondition{
			{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))},
		}},
	}
}

// put has the informer know a StatefulSet.
func (w *world) put(s *appsv1.StatefulSet) {
	w.Helper()
	must.OK(w.T, w.factory.Apps().V1().StatefulSets().Informer().GetStore().Add(s))
}

// set returns a copy of the StatefulSet nb.
func (w *world) set() *appsv1.StatefulSet {
	w.Helper()
	s, err := w.statefulSets.StatefulSets("ns").Get("nb")
	must.OK(w.T, err)
	return s.DeepCopy()
}

// start has somebody scale the StatefulSet nb to one, as the API server notes it.
func (w *world) start(manager string) {
	w.Helper()
	s := w.set()
	s.Spec.Replicas = new(int32(1))
	s.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "scale", APIVersion: "apps/v1", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:replicas":{}}}`)},
	}}
	o, err := (&snapshot.Condenser{}).Condense(s)
	must.OK(w.T, err)
	w.put(o.(*appsv1.StatefulSet))
}

// annotate sets an annotation of the StatefulSet nb.
func (w *world) annotate(key, value string) {
	s := w.set()
	s.Annotations[key] = value
	w.put(s)
}

// pod returns the pod as the API server has it.
func (w *world) pod() *v1.Pod {
	w.Helper()
	p, err := w.kube.CoreV1().Pods("ns").Get(w.Context(), "nb-0", metav1.GetOptions{})
	must.OK(w.T, err)
	return p
}

// change changes the pod.
func (w *world) change(do func(*v1.Pod)) {
	w.Helper()
	p := w.pod()
	do(p)
	_, err := w.kube.CoreV1().Pods("ns").Update(w.Context(), p, metav1.UpdateOptions{})
	must.OK(w.T, err)
}

// idleFor has nothing work in the notebook for a time at noon, and the pod say so, with the four minutes that a controller takes off.
func (w *world) idleFor(d time.Duration) {
	w.Helper()
	w.jupyter.kernels("idle", noon.Add(-d))
	w.change(func(p *v1.Pod) {
		p.Annotations = map[string]string{
			v1alpha1.AnnotationNotebookIdleSince: noon.Add(-d - 4*time.Minute).Format(time.RFC3339),
			v1alpha1.AnnotationNotebookParksAt:   noon.Add(10 * time.Minute).Format(time.RFC3339),
		}
	})
}

// restart has another process take over, which knows nothing.
func (w *world) restart() { w.memory = map[types.UID]*memory{} }

// pass makes a pass after a time and returns the events.
func (w *world) pass(after time.Duration) (told []string) {
	w.Helper()
	w.at = w.at.Add(after)
	must.OK(w.T, w.Pass(w.Context()))
	return w.events()
}

// passes makes several passes, a minute apart, and returns the events.
func (w *world) passes(count int) (told []string) {
	w.Helper()
	for range count {
		told = append(told, w.pass(time.Minute)...)
	}
	return told
}

func (w *world) events() (told []string) {
	for {
		select {
		case e := <-w.said.Events:
			told = append(told, e)
		default:
			return told
		}
	}
}

// state returns the state in which the metrics count the notebook.
func (w *world) state() (states []string) {
	w.Helper()
	for _, state := range []string{"Active", "Idle", "Warned", "Parked", "Waking", stateInvalid} {
		if n := value(w.T, w.metrics.states.WithLabelValues(state)); n > 0 {
			states = append(states, state+" "+strconv.FormatFloat(n, 'f', -1, 64))
		}
	}
	return states
}
