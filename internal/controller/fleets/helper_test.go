package fleets

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// noon is the time of the first pass.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// bert is a fleet of two variants. A replica of a100 serves 45.4 requests a second within a second in 0.99 of all cases (50 - ln 100), one of t4
// serves 5.4; sizes are for 0.95 of the promise, at which they serve 45.2 and 5.15. An a100 costs as much as three t4.
const bert = `
metadata: {name: bert, namespace: ns, uid: uid-bert, generation: 3}
spec:
  promise: {quantile: "0.99", latency: 1s}
  variants:
  - name: a100
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: bert-a100}
    service: {name: bert-a100, port: 80}
    cost: 10
    minReplicas: 1
    maxReplicas: 20
    loadTime: 60s
    replica: {rate: "50", time: 20ms}
  - name: t4
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: bert-t4}
    service: {name: bert-t4, port: 80}
    cost: 3
    minReplicas: 0
    maxReplicas: 20
    loadTime: 60s
    replica: {rate: "10", time: 100ms}
  route: {httpRoute: {name: bert, rule: 1}}
  metrics:
    prometheusURL: http://prometheus
    queries: {rate: rate, latency: latency, variantRate: rate $(variant), variantLatency: latency $(variant), variantErrors: errors $(variant)}
`

// aRoute is the HTTPRoute of bert. Its first rule is of others.
const aRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: bert, namespace: ns}
spec:
  rules:
  - backendRefs: [{name: other, port: 80, weight: 7}]
  - backendRefs:
    - {group: "", kind: Service, name: bert-t4, port: 80, weight: 0}
    - {group: "", kind: Service, name: bert-a100, port: 80, weight: 1}
`

func read[T any](t testing.TB, text string) *T {
	t.Helper()
	o := new(T)
	must.OK(t, yaml.UnmarshalStrict([]byte(text), o))
	return o
}

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	must.OK(t, err)
	o := &unstructured.Unstructured{}
	must.OK(t, o.UnmarshalJSON(raw))
	return o
}

// world is an API server and a Prometheus with a Controller.
type world struct {
	*testing.T
	*Controller
	at      time.Time
	objects client.Client
	kube    informers.SharedInformerFactory
	said    *events.FakeRecorder
	prom    *fakePrometheus
	// replicas of the Deployments, ready endpoints of their Services.
	replicas, ready map[string]int
	route           *unstructured.Unstructured
	// writes are the patches that were applied: "scale bert-a100 1→2", "route 1 bert-t4:100 bert-a100:900".
	writes []string
	// before is called before a patch is applied: with "scale bert-a100" or "route bert". It may change the objects, or refuse.
	before func(what string) error
	// quota is how many pods a ResourceQuota lets a Deployment have, where it bounds them. With stale, their controller has not seen the last number.
	quota map[string]int
	stale bool
	// podLabels are those of the pod template of bert-a100.
	podLabels map[string]string
	// owners are the InferenceServices that have Deployments of a name, and gets counts the reads of Deployments.
	owners map[string]string
	gets   int
	// getErr is the answer to reads of Deployments, else nil.
	getErr error
	// scaleErr is the answer to reads of Deployments and scales of a name, else nil.
	scaleErr map[string]error
}

// newWorld has the fleet bert, its Deployments with 1 and 0 replicas, all ready, and its route.
func newWorld(t *testing.T, more ...*v1alpha1.InferenceFleet) *world {
	w := &world{T: t, at: noon, said: events.NewFakeRecorder(1000), prom: startPrometheus(t), replicas: map[string]int{"bert-a100": 1, "bert-t4": 0},
		ready: map[string]int{}, route: object(t, aRoute), scaleErr: map[string]error{}, quota: map[string]int{}, owners: map[string]string{}}
	f := read[v1alpha1.InferenceFleet](t, bert)
	scheme := runtime.NewScheme()
	must.OK(t, v1alpha1.AddToScheme(scheme))
	all := []client.Object{f}
	for _, o := range more {
		all = append(all, o)
	}
	for _, o := range all {
		o.(*v1alpha1.InferenceFleet).Spec.Metrics.PrometheusURL = w.prom.URL
	}
	w.objects = fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).WithStatusSubresource(all...).Build()
	w.kube = informers.NewSharedInformerFactory(kubefake.NewClientset(), 0)
	for _, name := range []string{"bert-a100", "bert-t4"} {
		must.OK(t, w.kube.Core().V1().Services().Informer().GetIndexer().Add(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}))
		w.setReady(name, w.replicas[name])
	}
	w.restart()
	return w
}

// restart starts a new process: it knows what the API server knows.
func (w *world) restart() {
	w.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	dynamic := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	dynamic.PrependReactor("*", "*", w.serve)
	var err error
	w.Controller, err = New(Options{
		Informers: w.kube, Dynamic: dynamic, Mapper: mapper, Client: w.objects, Recorder: w.said, Every: 15 * time.Second, Patience: 2 * time.Minute,
		Now: func() time.Time { return w.at },
	})
	must.OK(w.T, err)
}

// serve answers for scales and the route.
func (w *world) serve(action k8stesting.Action) (bool, runtime.Object, error) {
	patch, isPatch := action.(k8stesting.PatchActionImpl)
	named, _ := action.(interface{ GetName() string })
	switch name := named.GetName(); {
	case action.Matches("get", "deployments/scale"):
		return w.answer(w.scale(name))
	case action.Matches("get", "deployments"):
		return w.answer(w.deployment(name))
	case action.Matches("get", "httproutes"):
		if w.route == nil || name != w.route.GetName() {
			return true, nil, apierrors.NewNotFound(HTTPRoutes.GroupResource(), name)
		}
		return true, w.route.DeepCopy(), nil
	case isPatch && patch.GetPatchType() == types.JSONPatchType:
		return w.answer(w.patch(patch))
	}
	w.Fatalf("unexpected request: %s %s", action.GetVerb(), action.GetResource())
	return true, nil, nil
}

func (*world) answer(o *unstructured.Unstructured, err error) (bool, runtime.Object, error) {
	if err != nil {
		return true, nil, err
	}
	return true, o, nil
}

// scale is as Kubernetes makes it: without the field replicas where there are 0.
func (w *world) scale(name string) (*unstructured.Unstructured, error) {
	n, has := w.replicas[name]
	if err := w.scaleErr[name]; err != nil {
		return nil, err
	}
	if !has {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, name)
	}
	spec := map[string]any{}
	if n > 0 {
		spec["replicas"] = int64(n)
	}
	version := fmt.Sprintf("%d-%s", n, w.owners[name])
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": name, "namespace": "ns", "resourceVersion": version}, "spec": spec,
		"status": map[string]any{"selector": "app=" + name, "replicas": int64(w.made(name))}}}, nil
}

// made is how many pods a Deployment has.
func (w *world) made(name string) int {
	if most, bounded := w.quota[name]; bounded {
		return min(most, w.replicas[name])
	}
	return w.replicas[name]
}

// deployment has the pod template of bert-a100.
func (w *world) deployment(name string) (*unstructured.Unstructured, error) {
	if w.getErr != nil {
		return nil, w.getErr
	}
	if err := w.scaleErr[name]; err != nil {
		return nil, err
	}
	if _, has := w.replicas[name]; !has {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, name)
	}
	status := map[string]any{"observedGeneration": int64(2)}
	if w.stale {
		status["observedGeneration"] = int64(1)
	}
	if w.made(name) < w.replicas[name] {
		status["conditions"] = []any{
			map[string]any{"type": "Progressing", "status": "True"},
			map[string]any{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refuse},
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "status": status,
		"metadata": map[string]any{"name": name, "namespace": "ns", "generation": int64(2)}}}
	if owner := w.owners[name]; owner != "" {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "serving.kserve.io/v1beta1", Kind: "InferenceService", Name: owner, UID: "u", Controller: new(true)}})
	}
	w.gets++
	must.OK(w.T, unstructured.SetNestedStringMap(o.Object, w.podLabels, "spec", "template", "metadata", "labels"))
	return o, nil
}

// patch applies a JSON patch. The answer to one that does not apply is that of the API server.
func (w *world) patch(a k8stesting.PatchActionImpl) (*unstructured.Unstructured, error) {
	isScale := a.GetSubresource() == "scale"
	what := "route " + a.GetName()
	if isScale {
		what = "scale " + a.GetName()
	}
	if w.before != nil {
		if err := w.before(what); err != nil {
			return nil, err
		}
	}
	now := w.route
	if isScale {
		var err error
		if now, err = w.scale(a.GetName()); err != nil {
			return nil, err
		}
	}
	raw, err := json.Marshal(now.Object)
	must.OK(w.T, err)
	p, err := jsonpatch.DecodePatch(a.GetPatch())
	must.OK(w.T, err)
	changed, err := p.Apply(raw)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", a.GetResource().GroupResource(), a.GetName(), err.Error(), 0, false)
	}
	o := &unstructured.Unstructured{}
	must.OK(w.T, o.UnmarshalJSON(changed))
	if !isScale {
		w.route = o
		w.writes = append(w.writes, "route "+w.weights())
		return o, nil
	}
	n, _, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
	must.OK(w.T, err)
	w.writes = append(w.writes, fmt.Sprintf("%s %d→%d", what, w.replicas[a.GetName()], n))
	w.replicas[a.GetName()] = int(n)
	return o, nil
}

// weights are those of the rule of the fleet: "bert-t4:0 bert-a100:1000".
func (w *world) weights() string { return w.weightsOf(1) }

func (w *world) weightsOf(rule int) string {
	rules, _, _ := unstructured.NestedSlice(w.route.Object, "spec", "rules")
	refs, _, _ := unstructured.NestedSlice(rules[rule].(map[string]any), "backendRefs")
	var words []string
	for _, r := range refs {
		ref := r.(map[string]any)
		words = append(words, fmt.Sprintf("%v:%v", ref["name"], ref["weight"]))
	}
	return strings.Join(words, " ")
}

// setWeights is what another writer of the route does.
func (w *world) setWeights(t4, a100 int64) {
	rules, _, _ := unstructured.NestedSlice(w.route.Object, "spec", "rules")
	refs := rules[1].(map[string]any)["backendRefs"].([]any)
	refs[0].(map[string]any)["weight"], refs[1].(map[string]any)["weight"] = t4, a100
	must.OK(w.T, unstructured.SetNestedSlice(w.route.Object, rules, "spec", "rules"))
}

// setReady makes so many endpoints of a Service ready; one more is not.
func (w *world) setReady(name string, n int) {
	w.Helper()
	w.ready[name] = n
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name + "-4", Labels: map[string]string{discoveryv1.LabelServiceName: name}}}
	for i := range n + 1 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			TargetRef: &v1.ObjectReference{Name: fmt.Sprintf("%s-%d", name, i)}, Conditions: discoveryv1.EndpointConditions{Ready: new(i < n)},
		})
	}
	other := s.DeepCopy() // the slice of the other IP family has the same endpoints
	other.Name = name + "-6"
	for _, slice := range []*discoveryv1.EndpointSlice{s, other} {
		must.OK(w.T, w.kube.Discovery().V1().EndpointSlices().Informer().GetIndexer().Add(slice))
	}
}

// pass makes a pass, which must not fail, and lets 15 s go by. It returns the writes of the pass.
func (w *world) pass() []string {
	w.Helper()
	w.writes = nil
	w.prom.mu.Lock()
	w.prom.at = w.at.Add(-w.prom.lag)
	w.prom.mu.Unlock()
	must.OK(w, w.Pass(w.Context()))
	w.at = w.at.Add(15 * time.Second)
	return w.writes
}

// settle makes passes for a time. Replicas that are wanted are ready 15 s later, and those that are not end.
func (w *world) settle(span time.Duration) (writes []string) {
	w.Helper()
	for range int(span / (15 * time.Second)) {
		writes = append(writes, w.pass()...)
		for name := range w.replicas {
			w.setReady(name, w.made(name))
		}
	}
	return writes
}

// fleet returns a fleet as it is now.
func (w *world) fleet(name string) *v1alpha1.InferenceFleet {
	w.Helper()
	f := &v1alpha1.InferenceFleet{}
	must.OK(w.T, w.objects.Get(w.Context(), types.NamespacedName{Namespace: "ns", Name: name}, f))
	return f
}

// change changes the spec of bert.
func (w *world) change(edit func(*v1alpha1.InferenceFleetSpec)) {
	w.Helper()
	f := w.fleet("bert")
	edit(&f.Spec)
	must.OK(w.T, w.objects.Update(w.Context(), f))
}

// condition returns a condition of bert: "False ForeignBackends".
func (w *world) condition(kind string) string {
	w.Helper()
	c := meta.FindStatusCondition(w.fleet("bert").Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

func (w *world) message(kind string) string {
	w.Helper()
	if c := meta.FindStatusCondition(w.fleet("bert").Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// events returns the events since the last call.
func (w *world) events() (list []string) {
	for {
		select {
		case e := <-w.said.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

func (w *world) autoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	w.Helper()
	h.Namespace = "ns"
	must.OK(w.T, w.kube.Autoscaling().V2().HorizontalPodAutoscalers().Informer().GetIndexer().Add(h))
}

func (w *world) patches(kind, result string) float64 {
	return testutil.ToFloat64(w.metrics.patches.WithLabelValues(kind, result))
}
