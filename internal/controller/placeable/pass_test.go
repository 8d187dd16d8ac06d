package placeable

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/servedmetrics"
)

// world is a controller with the API in memory: the stores of its informers are filled by hand.
type world struct {
	*Controller
	core    informers.SharedInformerFactory
	kueue   dynamicinformer.DynamicSharedInformerFactory
	objects *dynamicfake.FakeDynamicClient
	time    time.Time
}

// newWorld returns a controller on four empty nodes of two GPUs each.
func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	must.OK(t, v1alpha1.AddToScheme(scheme))
	w := &world{time: noon}
	w.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		Workloads: "WorkloadList", AdmissionChecks: "AdmissionCheckList", ResourceFlavors: "ResourceFlavorList",
	})
	w.kueue = dynamicinformer.NewDynamicSharedInformerFactory(w.objects, 0)
	gpus := clientfake.NewClientBuilder().WithScheme(scheme)
	o := racks()
	for _, g := range o.GPUNodes {
		gpus = gpus.WithObjects(g)
	}
	w.core = informers.NewSharedInformerFactory(kubefake.NewClientset(), 0)
	var err error
	w.Controller, err = New(Options{
		Informers: w.core, Kueue: w.kueue, Dynamic: w.objects, Reader: gpus.Build(), Every: time.Second, Patience: time.Minute,
		Now: func() time.Time { return w.time }, Preemption: preemption(t),
	})
	must.OK(t, err)
	for _, n := range o.Nodes {
		must.OK(t, w.core.Core().V1().Nodes().Informer().GetStore().Add(n))
	}
	must.OK(t, w.core.Scheduling().V1().PriorityClasses().Informer().GetStore().Add(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 7, GlobalDefault: true}))
	w.put(t, AdmissionChecks, "AdmissionCheck", map[string]any{
		"metadata": map[string]any{"name": "placeable"}, "spec": map[string]any{"controllerName": v1alpha1.ControllerPlaceable},
	})
	w.put(t, AdmissionChecks, "AdmissionCheck", map[string]any{
		"metadata": map[string]any{"name": "other"}, "spec": map[string]any{"controllerName": "example.com/other"},
	})
	return w
}

// put makes an object, or replaces it.
func (w *world) put(t *testing.T, resource schema.GroupVersionResource, kind string, content map[string]any) {
	t.Helper()
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	u.SetAPIVersion(kueue.String())
	u.SetKind(kind)
	client := w.objects.Resource(resource).Namespace(u.GetNamespace())
	if _, err := client.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		_, err = client.Update(t.Context(), u, metav1.UpdateOptions{})
		must.OK(t, err)
	}
	must.OK(t, w.kueue.ForResource(resource).Informer().GetStore().Add(u))
}

// object returns an object as the API has it, and shows it to the controller.
func (w *world) object(t *testing.T, resource schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	u, err := w.objects.Resource(resource).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	must.OK(t, err)
	must.OK(t, w.kueue.ForResource(resource).Informer().GetStore().Add(u))
	return u
}

// submit makes a Workload of GPUs that has quota since a time, with a check beside ours, and with changes.
func (w *world) submit(t *testing.T, name string, gpus int64, since time.Time, changes ...func(workload map[string]any)) {
	t.Helper()
	at := since.Format(time.RFC3339)
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&PodSet{Name: "main", Count: int32(gpus), Template: template(10)})
	must.OK(t, err)
	workload := map[string]any{
		"metadata": map[string]any{"namespace": "ns", "name": name, "uid": "uid-" + name, "creationTimestamp": at},
		"spec":     map[string]any{"podSets": []any{spec}},
		"status": map[string]any{
			"conditions": []any{map[string]any{"type": quotaReserved, "status": "True", "lastTransitionTime": at}},
			"admissionChecks": []any{
				map[string]any{"name": "other", "state": "Pending", "message": "", "lastTransitionTime": at},
				map[string]any{"name": "placeable", "state": "Pending", "message": "", "lastTransitionTime": at},
			},
		},
	}
	for _, change := range changes {
		change(workload)
	}
	w.put(t, Workloads, "Workload", workload)
}

// admit has Kueue admit a Workload at a time.
func (w *world) admit(t *testing.T, name string, at time.Time) {
	t.Helper()
	u := w.object(t, Workloads, "ns", name).DeepCopy()
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	must.OK(t, err)
	conditions = append(conditions, map[string]any{"type": admitted, "status": "True", "lastTransitionTime": at.Format(time.RFC3339)})
	must.OK(t, unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions"))
	w.put(t, Workloads, "Workload", u.Object)
}

// check returns the state of our check and its message, after a pass.
func (w *world) check(t *testing.T, name string) (state, message string) {
	t.Helper()
	u := w.object(t, Workloads, "ns", name)
	checks, _, _ := unstructured.NestedSlice(u.Object, "status", "admissionChecks")
	if other := checks[0].(map[string]any); len(checks) != 2 || other["state"] != "Pending" || other["message"] != "" {
		t.Errorf("the check of another controller is %v", other)
	}
	ours := checks[1].(map[string]any)
	return ours["state"].(string), ours["message"].(string)
}

func (w *world) pass(t *testing.T) {
	t.Helper()
	must.OK(t, w.Pass(t.Context()))
}

func TestPassActivates(t *testing.T) {
	w := newWorld(t)
	w.put(t, AdmissionChecks, "AdmissionCheck", map[string]any{"metadata": map[string]any{"name": "wrong"},
		"spec": map[string]any{"controllerName": v1alpha1.ControllerPlaceable, "parameters": map[string]any{"name": "p"}}})
	w.pass(t)
	for name, want := range map[string]string{"placeable": "True Active", "wrong": "False ParametersGiven", "other": ""} {
		conditions, _, _ := unstructured.NestedSlice(w.object(t, AdmissionChecks, "", name).Object, "status", "conditions")
		got := ""
		for _, raw := range conditions {
			c := raw.(map[string]any)
			got += fmt.Sprint(c["status"], " ", c["reason"])
		}
		if got != want {
			t.Errorf("the condition of %s is %q, want %q", name, got, want)
		}
	}
	w.objects.ClearActions()
	w.pass(t)
	for _, a := range w.objects.Actions() {
		if a.GetVerb() == "patch" {
			t.Errorf("a pass without news wrote %v", a)
		}
	}
}

// The answers follow what fits: places that were given a moment ago are taken, and a Workload that waits in vain gives its quota back for longer
// and longer.
func TestPassAnswers(t *testing.T) {
	w := newWorld(t)
	w.submit(t, "first", 6, noon.Add(-2*time.Second))
	w.submit(t, "second", 4, noon.Add(-time.Second))
	w.submit(t, "huge", 9, noon)
	w.pass(t)
	if state, message := w.check(t, "first"); state != "Ready" || message != "6 of 6 pods have places on 3 nodes" {
		t.Errorf("the first Workload: %s, %s", state, message)
	}
	if state, message := w.check(t, "second"); state != "Pending" || !strings.Contains(message, "needs 4 × 1 GPU; the cluster takes 2") {
		t.Errorf("the second Workload: %s, %s", state, message)
	}
	if state, _ := w.check(t, "huge"); state != "Retry" {
		t.Errorf("a Workload larger than the cluster: %s", state)
	}
	if got := testutil.ToFloat64(w.metrics.waiting); got != 2 {
		t.Errorf("%v Workloads wait, want 2", got)
	}

	w.time = noon.Add(30 * time.Second) // the pods of the first one have no nodes yet
	w.pass(t)
	if state, _ := w.check(t, "second"); state != "Pending" {
		t.Errorf("the second Workload got the places of the first: %s", state)
	}
	w.time = noon.Add(59 * time.Second)
	w.pass(t)
	state, _ := w.check(t, "second")
	requeue, _, _ := unstructured.NestedMap(w.object(t, Workloads, "ns", "second").Object, "status", "requeueState")
	if want := map[string]any{"count": int64(1), "requeueAt": "2026-01-31T12:01:59Z"}; state != "Retry" || !cmp.Equal(requeue, want) {
		t.Errorf("the second Workload is %s and is tried again %v", state, requeue)
	}
	for state, want := range map[State]float64{Ready: 1, Pending: 1, Retry: 2, Rejected: 0} {
		if got := testutil.ToFloat64(w.metrics.answers.WithLabelValues(string(state))); got != want {
			t.Errorf("%v answers %s, want %v", got, state, want)
		}
	}
}

// A Workload keeps its places until Kueue has admitted it, and then for a while, if its pods do not come.
func TestPassForgetsStarted(t *testing.T) {
	w := newWorld(t)
	w.submit(t, "first", 8, noon)
	w.pass(t)
	if state, _ := w.check(t, "first"); state != "Ready" {
		t.Fatalf("the first Workload: %s", state)
	}
	w.time = noon.Add(time.Hour) // another check takes as long
	w.submit(t, "second", 8, w.time)
	w.pass(t)
	if state, message := w.check(t, "second"); state != "Pending" {
		t.Errorf("before the first Workload is admitted the second is %s, %s", state, message)
	}
	w.admit(t, "first", w.time)
	w.time = w.time.Add(startsWithin - time.Second)
	w.pass(t)
	if state, _ := w.check(t, "second"); state == "Ready" {
		t.Error("a moment after the first Workload was admitted the second is Ready")
	}
	w.submit(t, "third", 8, w.time)
	w.time = w.time.Add(time.Second)
	w.pass(t)
	if state, message := w.check(t, "third"); state != "Ready" {
		t.Errorf("the Workload after one whose pods do not come: %s, %s", state, message)
	}
}

// A Workload that ran before its ClusterQueue had the check runs on: Kueue would evict it for any other answer than Ready.
func TestPassLeavesRunning(t *testing.T) {
	w := newWorld(t)
	for _, p := range everywhere(t, 10, 7) {
		w.run(t, p)
	}
	w.submit(t, "runs", 8, noon.Add(-time.Hour))
	w.submit(t, "wrong", 1, noon.Add(-time.Hour), func(workload map[string]any) {
		set := workload["spec"].(map[string]any)["podSets"].([]any)[0].(map[string]any)
		must.OK(t, unstructured.SetNestedField(set, "80%", "template", "metadata", "annotations", v1alpha1.AnnotationComputeLimit))
	})
	w.admit(t, "runs", noon.Add(-time.Hour))
	w.admit(t, "wrong", noon.Add(-time.Hour))
	w.pass(t)
	for _, name := range []string{"runs", "wrong"} {
		if state, message := w.check(t, name); state != "Ready" || message != "It runs already" {
			t.Errorf("the admitted Workload %s: %s, %s", name, state, message)
		}
	}
}

// Every check of the controller that a Workload has is answered.
func TestPassAnswersEachCheck(t *testing.T) {
	w := newWorld(t)
	w.put(t, AdmissionChecks, "AdmissionCheck", map[string]any{
		"metadata": map[string]any{"name": "renamed"}, "spec": map[string]any{"controllerName": v1alpha1.ControllerPlaceable},
	})
	states := func(name string) (all []string) {
		t.Helper()
		checks, _, _ := unstructured.NestedSlice(w.object(t, Workloads, "ns", name).Object, "status", "admissionChecks")
		for _, c := range checks {
			all = append(all, c.(map[string]any)["state"].(string))
		}
		return all
	}
	for name, first := range map[string]State{"new": Pending, "answered": Ready} {
		w.submit(t, name, 1, noon, func(workload map[string]any) {
			status := workload["status"].(map[string]any)
			checks := status["admissionChecks"].([]any)
			checks[1].(map[string]any)["state"] = string(first)
			status["admissionChecks"] = append(checks, map[string]any{"name": "renamed", "state": "Pending", "message": "", "lastTransitionTime": noon.Format(time.RFC3339)})
		})
	}
	w.pass(t)
	for _, name := range []string{"new", "answered"} {
		if diff := cmp.Diff([]string{"Pending", "Ready", "Ready"}, states(name)); diff != "" {
			t.Errorf("checks of the Workload %s (-want +got):\n%s", name, diff)
		}
	}
}

// Workloads without quota, evicted ones, those that ended and inactive ones get no answer.
func TestPassLeavesOthers(t *testing.T) {
	for name, change := range map[string]func(*Workload){
		"no quota": func(w *Workload) { w.Status.Conditions = nil },
		"evicted": func(w *Workload) {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: evicted, Status: metav1.ConditionTrue})
		},
		"finished": func(w *Workload) {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: finished, Status: metav1.ConditionTrue})
		},
		"not active":  func(w *Workload) { w.Spec.Active = new(false) },
		"in deletion": func(w *Workload) { w.DeletionTimestamp = new(metav1.NewTime(noon)) },
	} {
		w := work("w", set("main", 1, template(1)))
		if !w.holdsQuota() {
			t.Error("a Workload with quota is left alone")
		}
		if change(w); w.holdsQuota() {
			t.Errorf("a Workload gets an answer: %s", name)
		}
	}
}

// A status that changed since it was read is not overwritten.
func TestPassIsStale(t *testing.T) {
	w := newWorld(t)
	w.submit(t, "first", 1, noon)
	u := w.object(t, Workloads, "ns", "first").DeepCopy()
	u.SetResourceVersion("7")
	must.OK(t, w.kueue.ForResource(Workloads).Informer().GetStore().Add(u))
	var sent string
	w.objects.PrependReactor("patch", "workloads", func(a clienttesting.Action) (bool, runtime.Object, error) {
		sent = string(a.(clienttesting.PatchAction).GetPatch())
		return true, nil, apierrors.NewConflict(Workloads.GroupResource(), "first", nil)
	})
	w.pass(t)
	if !strings.Contains(sent, `"resourceVersion":"7"`) {
		t.Errorf("the patch does not name what was read: %s", sent)
	}
	if got := testutil.ToFloat64(w.metrics.answers.WithLabelValues(string(Ready))); got != 0 {
		t.Errorf("%v answers count as written", got)
	}
}

// Owners find the pods of Jobs, JobSets and single pods.
func TestOwns(t *testing.T) {
	w := &Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", OwnerReferences: owner("job")}}
	for name, c := range map[string]struct {
		pod  metav1.ObjectMeta
		want bool
	}{
		"made by it":           {metav1.ObjectMeta{Namespace: "ns", OwnerReferences: owner("job")}, true},
		"made by another":      {metav1.ObjectMeta{Namespace: "ns", OwnerReferences: owner("other")}, false},
		"of its JobSet":        {metav1.ObjectMeta{Namespace: "ns", OwnerReferences: owner("jobset-worker-0"), Labels: map[string]string{jobSetUID: "uid-job"}}, true},
		"itself":               {metav1.ObjectMeta{Namespace: "ns", UID: "uid-job"}, true},
		"of another namespace": {metav1.ObjectMeta{Namespace: "other", OwnerReferences: owner("job")}, false},
	} {
		if got := w.owns(&v1.Pod{ObjectMeta: c.pod}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestNew(t *testing.T) {
	for want, o := range map[string]Options{
		"the time between two looks is 999ms, legal is 1s to 10m0s": {Every: 999 * time.Millisecond},
		"the patience is 24h0m1s, legal is 0s to 24h0m0s":           {Every: time.Second, Patience: MostPatience + time.Second},
	} {
		if _, err := New(o); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPriorities(t *testing.T) {
	w := newWorld(t)
	got, err := w.priorities()
	must.OK(t, err)
	want := Classes{Values: map[string]int32{"usual": 7}, Preempts: map[string]bool{"usual": true}, Default: "usual"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	s := set("main", 1, template(1))
	if pod := templateOf(work("w", s), &s, nil, nil, &got); *pod.Spec.Priority != 7 {
		t.Errorf("a pod without a class has the priority %d", *pod.Spec.Priority)
	}
}

// The controller serves the metrics that the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(newWorld(t).Collectors()...)
	servedmetrics.Check(t, r, "", Families())
}
