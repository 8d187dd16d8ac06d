package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

var (
	httpRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	fleets     = v1alpha1.GroupVersion.WithResource("inferencefleets")
)

// fleetCluster is an API server with deploy/ applied and the Gateway API's HTTPRoutes, and the controller under its account. Deployments have
// no controller here: the test makes the endpoints that their pods would have.
type fleetCluster struct {
	*gangCluster
	// measured are the answers of Prometheus, by query.
	mu         sync.Mutex
	measured   map[string]float64
	prometheus string
	// began is when the controller's clock was right, and speed how many times as fast it runs; 0 is a controller with the usual clock.
	began time.Time
	speed int
}

// startFleetCluster starts an API server and a controller, whose clock runs so many times as fast.
func startFleetCluster(t *testing.T, speed int) *fleetCluster {
	t.Helper()
	c := newFleetCluster(t)
	c.began, c.speed = time.Now(), speed
	c.applySource(t, "sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml")
	server := httptest.NewServer(http.HandlerFunc(c.answer))
	t.Cleanup(server.Close)
	c.prometheus = server.URL
	c.startReplicas(t)
	c.restart(t)
	return c
}

// newFleetCluster starts an API server with deploy/ applied. Changes are to its options.
func newFleetCluster(t *testing.T, changes ...func(*sandbox.Options)) *fleetCluster {
	t.Helper()
	mode := gangModes()[0]
	for _, change := range changes {
		change(&mode.api)
	}
	return &fleetCluster{gangCluster: newPlane(t, mode), measured: map[string]float64{}}
}

// quick returns the time of the controller's clock.
func (c *fleetCluster) quick() time.Time {
	if c.speed == 0 {
		return time.Now()
	}
	return c.began.Add(time.Duration(c.speed) * time.Since(c.began))
}

// restart starts the controller, with short times.
func (c *fleetCluster) restart(t *testing.T) {
	t.Helper()
	c.startWithClock(t, "--features=inference", "--inference-interval=1s", "--inference-patience=1m")
}

// startWithClock starts the controller, with the fast clock where the cluster has one.
func (c *fleetCluster) startWithClock(t *testing.T, more ...string) {
	t.Helper()
	if c.speed == 0 {
		c.startController(t, more...)
		return
	}
	binary := sandbox.ProgramForTest(t, "controller-fastclock")
	kubeconfig, err := c.plane.ServiceAccount(life(t), "tandem-system", "tandem-controller")
	must.OK(t, err)
	flags := append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"}, more...)
	c.starts++
	process, err := supervise(c.plane.Processes(), fmt.Sprintf("controller-%d", c.starts), func() *exec.Cmd {
		cmd := exec.Command(binary, flags...)
		cmd.Env = append(os.Environ(), "TANDEM_FASTCLOCK_BEGIN="+c.began.Format(time.RFC3339Nano), fmt.Sprintf("TANDEM_FASTCLOCK_SPEED=%d", c.speed))
		return cmd
	})
	must.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller said:\n%s", process.Tail(60))
		}
	})
	c.controller = process
}

// in runs a test in a namespace of its own, beside the others.
func (c *fleetCluster) in(t *testing.T, name string, test func(*testing.T, *fleetScene)) {
	c.tests++
	s := &fleetScene{fleetCluster: c, namespace: fmt.Sprintf("team-%d", c.tests)}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		s.play(t, test)
	})
}

// play runs the test of a scene in its namespace.
func (s *fleetScene) play(t *testing.T, test func(*testing.T, *fleetScene)) {
	t.Helper()
	_, err := s.admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	must.OK(t, err)
	s.record(t)
	test(t, s)
	s.check(t)
}

// measure has Prometheus answer a query from now on.
func (c *fleetCluster) measure(query string, value float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.measured[query] = value
}

// answer is the part of the API of Prometheus that the controller uses.
func (c *fleetCluster) answer(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	value, known := c.measured[r.FormValue("query")]
	c.mu.Unlock()
	result := ""
	if known {
		result = fmt.Sprintf(`{"metric": {}, "value": [%d, %q]}`, c.quick().Unix(), strconv.FormatFloat(value, 'f', -1, 64))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"status": "success", "data": {"resultType": "vector", "result": [%s]}}`, result)
}

// startReplicas does what Kubernetes does with Deployments: each has as many ready endpoints behind the Service of its name as it has replicas.
func (c *fleetCluster) startReplicas(t *testing.T) {
	t.Helper()
	eachDeployment(t, c.admin, c.serve)
}

// eachDeployment calls a function with all Deployments again and again until the test ends.
func eachDeployment(t *testing.T, admin kubernetes.Interface, do func(context.Context, *appsv1.Deployment)) {
	t.Helper()
	ctx, cancel := context.WithCancel(life(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if list, err := admin.AppsV1().Deployments("").List(ctx, metav1.ListOptions{}); err == nil {
				for i := range list.Items {
					do(ctx, &list.Items[i])
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// serve makes the endpoints of a Deployment. An error is not told: the next round tries again.
func (c *fleetCluster) serve(ctx context.Context, d *appsv1.Deployment) {
	publish(ctx, c.admin, d, slices.Repeat([]bool{true}, int(*d.Spec.Replicas)))
}

// publish makes the endpoints of a Deployment's Service: those of its replicas that serve.
func publish(ctx context.Context, admin kubernetes.Interface, d *appsv1.Deployment, serves []bool) {
	want := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, Labels: map[string]string{discoveryv1.LabelServiceName: d.Name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	for i, ok := range serves {
		if ok {
			want.Endpoints = append(want.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("198.51.100.%d", i+1)}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
		}
	}
	api := admin.DiscoveryV1().EndpointSlices(d.Namespace)
	switch now, err := api.Get(ctx, d.Name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		_, _ = api.Create(ctx, want, metav1.CreateOptions{})
	case err == nil && len(now.Endpoints) != len(want.Endpoints):
		now.Endpoints = want.Endpoints
		_, _ = api.Update(ctx, now, metav1.UpdateOptions{})
	}
}

// A fleetScene is a test in a namespace of its own.
type fleetScene struct {
	*fleetCluster
	namespace string
	stop      context.CancelFunc
	watched   sync.WaitGroup
	seen      []fleetChange
	// last is the version of the newest object that the watch of a kind showed.
	last map[schema.GroupVersionResource]int64
}

// A fleetChange is a number that somebody wrote: replicas of a Deployment, or the weight of a backend.
type fleetChange struct {
	version  int64 // of the API server: of all its objects in one order
	what     string
	of       string
	from, to int64
}

// record notes all changes of sizes and weights in the namespace.
func (s *fleetScene) record(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(life(t))
	s.stop, s.last = cancel, map[schema.GroupVersionResource]int64{}
	s.follow(ctx, t, appsv1.SchemeGroupVersion.WithResource("deployments"), func(o *unstructured.Unstructured) map[string]int64 {
		replicas, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		return map[string]int64{"replicas " + o.GetName(): replicas}
	})
	s.follow(ctx, t, httpRoutes, func(o *unstructured.Unstructured) map[string]int64 {
		weights := map[string]int64{}
		rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
		for _, rule := range rules {
			refs, _, _ := unstructured.NestedSlice(rule.(map[string]any), "backendRefs")
			for _, ref := range refs {
				ref := ref.(map[string]any)
				weights["weight "+ref["name"].(string)] = ref["weight"].(int64)
			}
		}
		return weights
	})
	t.Cleanup(s.end)
}

// end ends the record.
func (s *fleetScene) end() {
	s.stop()
	s.watched.Wait()
}

// follow watches a kind, and notes which of an object's numbers change.
func (s *fleetScene) follow(ctx context.Context, t *testing.T, kind schema.GroupVersionResource, numbers func(*unstructured.Unstructured) map[string]int64) {
	t.Helper()
	objects := s.objects.Resource(kind).Namespace(s.namespace)
	list, err := objects.List(ctx, metav1.ListOptions{})
	must.OK(t, err)
	before := map[string]int64{}
	for i := range list.Items {
		s.note(kind, &list.Items[i], before, numbers)
	}
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return objects.Watch(ctx, o) },
	})
	must.OK(t, err)
	s.watched.Go(func() {
		defer w.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e, open := <-w.ResultChan():
				o, object := e.Object.(*unstructured.Unstructured)
				if !open || !object || !s.note(kind, o, before, numbers) {
					return
				}
			}
		}
	})
}

// note notes which numbers of an object differ from those before, and keeps them there. It returns false for an object without a version.
func (s *fleetScene) note(kind schema.GroupVersionResource, o *unstructured.Unstructured, before map[string]int64, numbers func(*unstructured.Unstructured) map[string]int64) bool {
	version, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, to := range numbers(o) {
		if from, known := before[key]; !known || from != to {
			s.seen = append(s.seen, fleetChange{version, key, o.GetName(), from, to})
		}
		before[key] = to
	}
	s.last[kind] = version
	return true
}

// changes returns what was written so far, in the order of the API server.
func (s *fleetScene) changes() []fleetChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(s.seen), func(a, b fleetChange) int { return int(a.version - b.version) })
}

// awaitRecord waits until the record has what was written before the call. Each kind has a watch of its own, and either may be behind the other.
func (s *fleetScene) awaitRecord(t *testing.T) {
	t.Helper()
	for _, kind := range []schema.GroupVersionResource{appsv1.SchemeGroupVersion.WithResource("deployments"), httpRoutes} {
		list, err := s.objects.Resource(kind).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{})
		must.OK(t, err)
		newest := int64(0)
		for i := range list.Items {
			version, err := strconv.ParseInt(list.Items[i].GetResourceVersion(), 10, 64)
			must.OK(t, err)
			newest = max(newest, version)
		}
		s.poll(t, "the record has all "+kind.Resource, func() (bool, string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.last[kind] >= newest, fmt.Sprintf("it has version %d of %d", s.last[kind], newest)
		})
	}
}

// check holds all changes to the law of the order of writes: the last replica of a variant leaves when the route gives the variant nothing.
func (s *fleetScene) check(t *testing.T) {
	t.Helper()
	s.awaitRecord(t)
	weights := map[string]int64{}
	for _, c := range s.changes() {
		switch name, replicas := strings.CutPrefix(c.what, "replicas "); {
		case !replicas:
			weights[c.what] = c.to
		case c.from > 0 && c.to == 0 && weights["weight "+name] > 0:
			t.Errorf("%s went to 0 replicas while its weight was %d: %+v", name, weights["weight "+name], s.changes())
		}
	}
}

// variant declares a variant of a fleet with a Deployment, a Service and a number of replicas to start with. A replica serves rate requests a
// second, each in its turn.
type variant struct {
	name           string
	rate           int
	cost, replicas int64
	least, most    int64
	weight         int64
}

// twoVariants are a fast dear variant and a slow cheap one.
func twoVariants() []variant {
	return []variant{
		{name: "a100", rate: 50, cost: 10, replicas: 1, least: 1, most: 10, weight: 1000},
		{name: "t4", rate: 10, cost: 3, replicas: 0, least: 0, most: 10},
	}
}

// create makes a fleet with all that it names. Its answers of Prometheus are those of "rate/<namespace>".
func (s *fleetScene) create(t *testing.T, name string, variants []variant) {
	t.Helper()
	for _, v := range variants {
		s.createVariant(t, name+"-"+v.name, v.replicas)
	}
	s.createRoute(t, name, variants)
	s.createFleet(t, name, name, variants, s.answers())
}

// answers are the queries that the test itself answers.
func (s *fleetScene) answers() map[string]any {
	return map[string]any{"prometheusURL": s.prometheus, "queries": map[string]any{"rate": "rate/$(namespace)"}}
}

func (s *fleetScene) createVariant(t *testing.T, name string, replicas int64) {
	t.Helper()
	labels := map[string]string{"app": name}
	_, err := s.admin.AppsV1().Deployments(s.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "server", Image: "none"}}}},
		},
	}, metav1.CreateOptions{})
	must.OK(t, err)
	_, err = s.admin.CoreV1().Services(s.namespace).Create(t.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ServiceSpec{Selector: labels, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	must.OK(t, err)
}

// createRoute makes an HTTPRoute with a rule for the variants. The schema of the Gateway API must know all its fields.
func (s *fleetScene) createRoute(t *testing.T, name string, variants []variant) {
	t.Helper()
	refs := make([]any, len(variants))
	for i, v := range variants {
		refs[i] = map[string]any{"name": name + "-" + v.name, "port": int64(80), "weight": v.weight}
	}
	s.createObject(t, httpRoutes, "HTTPRoute", name, map[string]any{
		"parentRefs": []any{map[string]any{"name": "gateway"}}, "rules": []any{map[string]any{"backendRefs": refs}},
	})
}

// createFleet makes a fleet whose scale targets and Services are named after another one.
func (s *fleetScene) createFleet(t *testing.T, name, after string, variants []variant, metrics map[string]any) {
	t.Helper()
	list := make([]any, len(variants))
	for i, v := range variants {
		list[i] = map[string]any{
			"name":           v.name,
			"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": after + "-" + v.name},
			"service":        map[string]any{"name": after + "-" + v.name, "port": int64(80)},
			"cost":           v.cost, "minReplicas": v.least, "maxReplicas": v.most, "loadTime": "1s",
			"replica": map[string]any{"rate": strconv.Itoa(v.rate), "time": (time.Second / time.Duration(v.rate)).String()},
		}
	}
	s.createObject(t, fleets, "InferenceFleet", name, map[string]any{
		"promise": map[string]any{"latency": "1s"}, "variants": list, "route": map[string]any{"httpRoute": map[string]any{"name": after}},
		"metrics": metrics,
	})
}

func (s *fleetScene) createObject(t *testing.T, kind schema.GroupVersionResource, name, called string, spec map[string]any) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind.GroupVersion().WithKind(name))
	o.SetName(called)
	if _, err := s.objects.Resource(kind).Namespace(s.namespace).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatal(err)
	}
}

// arrives sets how many requests a second arrive at the fleets of the namespace.
func (s *fleetScene) arrives(rate float64) { s.measure("rate/"+s.namespace, rate) }

// fleet returns a fleet.
func (s *fleetScene) fleet(t *testing.T, name string) *v1alpha1.InferenceFleet {
	t.Helper()
	o, err := s.objects.Resource(fleets).Namespace(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
	must.OK(t, err)
	f := &v1alpha1.InferenceFleet{}
	must.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, f))
	return f
}

// sizes returns the replicas and the weights of the two variants of a fleet, as the Deployments and the route have them.
func (s *fleetScene) sizes(t *testing.T, name string) (replicas, weights [2]int64) {
	t.Helper()
	for i, v := range twoVariants() {
		d, err := s.admin.AppsV1().Deployments(s.namespace).Get(t.Context(), name+"-"+v.name, metav1.GetOptions{})
		must.OK(t, err)
		replicas[i] = int64(*d.Spec.Replicas)
	}
	o, err := s.objects.Resource(httpRoutes).Namespace(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
	must.OK(t, err)
	for i, v := range twoVariants() {
		weights[i] = weightOf(o, name+"-"+v.name)
	}
	return replicas, weights
}

// weightOf returns the weight of a backend of the first rule of a route.
func weightOf(o *unstructured.Unstructured, backend string) int64 {
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
	refs, _, _ := unstructured.NestedSlice(rules[0].(map[string]any), "backendRefs")
	for _, ref := range refs {
		if ref := ref.(map[string]any); ref["name"] == backend {
			return ref["weight"].(int64)
		}
	}
	return -1
}

// awaitSizes waits until replicas and weights are right.
func (s *fleetScene) awaitSizes(t *testing.T, name, what string, right func(replicas, weights [2]int64) bool) {
	t.Helper()
	s.poll(t, what, func() (bool, string) {
		replicas, weights := s.sizes(t, name)
		return right(replicas, weights), fmt.Sprintf("replicas %v, weights %v, status %+v", replicas, weights, s.fleet(t, name).Status)
	})
}

// awaitReason waits until a condition of a fleet has a reason.
func (s *fleetScene) awaitReason(t *testing.T, name, kind, reason string) {
	t.Helper()
	s.poll(t, fmt.Sprintf("the condition %s of fleet %s is %s", kind, name, reason), func() (bool, string) {
		conditions := s.fleet(t, name).Status.Conditions
		c := meta.FindStatusCondition(conditions, kind)
		return c != nil && c.Reason == reason, fmt.Sprintf("%+v", conditions)
	})
}

// patchRoute changes a route as a user would.
func (s *fleetScene) patchRoute(t *testing.T, name string, kind types.PatchType, patch string) {
	t.Helper()
	if _, err := s.objects.Resource(httpRoutes).Namespace(s.namespace).Patch(t.Context(), name, kind, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
