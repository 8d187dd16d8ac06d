package activator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/servedmetrics"
)

// world is the notebook ns/nb with size 0, a server that its pod would be, and an activator before it.
type world struct {
	*testing.T
	*Activator
	front, pod *httptest.Server
	factory    informers.SharedInformerFactory
	said       *events.FakeRecorder

	mu sync.Mutex
	// scales are the patches that came, scaleErr is the answer to them, and woken is what a patch does.
	scales   []string
	scaleErr error
	woken    func()
}

func newWorld(t *testing.T, change ...func(*Options)) *world {
	w := &world{T: t, said: events.NewFakeRecorder(100)}
	w.pod = httptest.NewServer(http.HandlerFunc(w.answer))
	t.Cleanup(w.pod.Close)
	kube := kubefake.NewClientset()
	kube.PrependReactor("patch", "statefulsets", w.scale)
	w.factory = informers.NewSharedInformerFactory(kube, 0)
	o := Options{Informers: w.factory, Kube: kube, Recorder: w.said, HoldFor: time.Minute, MostHeld: 16, MostConnections: 80}
	for _, c := range change {
		c(&o)
	}
	var err error
	w.Activator, err = New(o)
	must.OK(t, err)
	w.factory.StartWithContext(t.Context())
	w.factory.WaitForCacheSync(t.Context().Done())
	w.woken = func() { w.put(1, nil); w.start() }
	w.put(0, nil)
	w.front = httptest.NewServer(w.Activator)
	t.Cleanup(w.front.Close)
	return w
}

// answer is the server of the notebook: it says what came, and speaks a protocol of its own after an upgrade.
func (w *world) answer(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		_, _ = fmt.Fprintf(rw, "%s %s of %s, forwarded for %t", r.Method, r.URL.RequestURI(), r.Host, r.Header.Get("X-Forwarded-For") != "")
		return
	}
	conn, both, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		w.Error(err)
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	line, _ := both.ReadString('\n')
	_, _ = fmt.Fprintf(conn, "you said %s", line)
}

// scale notes a patch, and does what the test wants.
func (w *world) scale(a k8stesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := a.(k8stesting.PatchAction)
	w.scales = append(w.scales, fmt.Sprintf("%s/%s %s", p.GetName(), p.GetSubresource(), p.GetPatch()))
	if w.scaleErr == nil {
		w.woken()
	}
	return true, &appsv1.StatefulSet{}, w.scaleErr
}

func (w *world) patches() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scales
}

// put has the activator know the StatefulSet with a size.
func (w *world) put(replicas int32, change func(*appsv1.StatefulSet)) {
	_, port, _ := net.SplitHostPort(w.pod.Listener.Addr().String())
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nb", UID: "set", Annotations: map[string]string{
			v1alpha1.AnnotationNotebook: v1alpha1.NotebookPark, v1alpha1.AnnotationNotebookPort: port, v1alpha1.AnnotationNotebookPath: "/ns/nb/",
		}},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nb"}}},
	}
	if change != nil {
		change(s)
	}
	must.OK(w.T, w.factory.Apps().V1().StatefulSets().Informer().GetStore().Add(s))
}

// start has the activator know the pod, which is ready.
func (w *world) start() {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nb-0", Labels: map[string]string{"app": "nb"}, OwnerReferences: []metav1.OwnerReference{{UID: "set", Controller: new(true)}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, PodIP: "127.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}
	must.OK(w.T, w.factory.Core().V1().Pods().Informer().GetStore().Add(p))
}

// ask sends a request and returns the status and the body.
func (w *world) ask(method, path string) (int, string) {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), method, w.front.URL+path, nil)
	must.OK(w.T, err)
	request.Host = "notebooks.example.com"
	answer, err := http.DefaultClient.Do(request)
	must.OK(w.T, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must.OK(w.T, err)
	if retry := answer.Header.Get("Retry-After"); answer.StatusCode >= 500 && !strings.Contains(string(body), "culled") && retry != retryAfter {
		w.Errorf("%s %s: Retry-After %q", method, path, retry)
	}
	return answer.StatusCode, string(body)
}

// wants asks, and wants a status and a part of the body.
func (w *world) wants(method, path string, status int, text string) {
	w.Helper()
	if got, body := w.ask(method, path); got != status || !strings.Contains(body, text) {
		w.Errorf("%s %s: %d %q, want %d %q", method, path, got, body, status, text)
	}
}

const wakePatch = `nb/scale [{"op":"test","path":"/spec","value":{}},{"op":"add","path":"/spec/replicas","value":1}]`

// The first request for a parked notebook wakes it and gets its answer; the next ones pass.
func TestWakes(t *testing.T) {
	w := newWorld(t)
	w.wants("GET", "/ns/nb/lab?a=b%2Fc", 200, "GET /ns/nb/lab?a=b%2Fc of notebooks.example.com, forwarded for true")
	w.wants("POST", "/ns/nb/api/kernels", 200, "POST /ns/nb/api/kernels")
	w.wants("GET", "/ns/nb/api/kernels", 200, "GET /ns/nb/api/kernels")
	if diff := cmp.Diff([]string{wakePatch}, w.patches()); diff != "" {
		t.Error(diff)
	}
	if e := <-w.said.Events; !strings.Contains(e, "Normal NotebookWoken scaled to one") {
		t.Error(e)
	}
	m := w.metrics
	for c, want := range map[prometheus.Collector]float64{
		m.requests.WithLabelValues(resultWoken): 1, m.requests.WithLabelValues(resultPassed): 2, m.wakes.WithLabelValues(wakeDone): 1, m.held: 0,
	} {
		if got := testutil.ToFloat64(c); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// A request that an open tab sends by itself does not wake a notebook. A request of a person does.
func TestPollsDoNotWake(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/ns/nb/api/kernels?1", "/ns/nb/api/terminals", "/ns/nb/lab/api/settings"} {
		w.wants("GET", path, 503, "the notebook is parked, and this request does not wake it: open /ns/nb/ in a browser")
	}
	if got := w.patches(); len(got) != 0 {
		t.Errorf("scaled: %v", got)
	}
	for _, test := range []struct {
		method, path, upgrade string
		want                  bool
	}{
		{"GET", "/ns/nb", "", true}, {"GET", "/ns/nb/", "", true}, {"GET", "/ns/nb/lab/tree/api/x.ipynb", "", true}, {"HEAD", "/ns/nb/api", "", true}, {"POST", "/ns/nb/api/sessions", "", true},
		{"GET", "/ns/nb/api/sessions", "", false}, {"GET", "/ns/nb/lab", "websocket", false},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		r.Header.Set("Upgrade", test.upgrade)
		if got := wakes(r, "/ns/nb"); got != test.want {
			t.Errorf("%v: %t", test, got)
		}
	}
}

// WebSockets pass.
func TestUpgrade(t *testing.T) {
	w := newWorld(t)
	w.put(1, nil)
	w.start()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.front.Listener.Addr().String())
	must.OK(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET /ns/nb/api/kernels/1/channels HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	must.OK(t, err)
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, nil)
	must.OK(t, err)
	defer answer.Body.Close()
	_, err = fmt.Fprintln(conn, "hello") // clients say nothing before the answer
	must.OK(t, err)
	line, err := reader.ReadString('\n')
	if answer.StatusCode != http.StatusSwitchingProtocols || err != nil || line != "you said hello\n" {
		t.Errorf("%s %v %q", answer.Status, err, line)
	}
}

// A path that leads to no notebook that may be parked is not found, whatever is there.
func TestUnknown(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/", "/ns", "/NS/nb/", "/ns/other/", "/other/nb/"} {
		if got, body := w.ask("GET", path); got != 404 {
			t.Errorf("%s: %d %s", path, got, body)
		}
	}
	for name, change := range map[string]func(s *appsv1.StatefulSet){
		"no annotation":  func(s *appsv1.StatefulSet) { s.Annotations = nil },
		"a bad one":      func(s *appsv1.StatefulSet) { s.Annotations[v1alpha1.AnnotationNotebookPort] = "0" },
		"another path":   func(s *appsv1.StatefulSet) { s.Annotations[v1alpha1.AnnotationNotebookPath] = "/ns/other" },
		"several pods":   func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(2)) },
		"host's network": func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.HostNetwork = true },
		"it leaves":      func(s *appsv1.StatefulSet) { s.DeletionTimestamp = &metav1.Time{} },
	} {
		w.put(0, change)
		if got, body := w.ask("GET", "/ns/nb/"); got != 404 || !strings.Contains(body, "tandem-gpu.io/notebook-path: /ns/nb") {
			t.Errorf("%s: %d %s", name, got, body)
		}
	}
	w.put(0, nil)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nb"}}
	d.Annotations = map[string]string{v1alpha1.AnnotationNotebook: v1alpha1.NotebookCull}
	must.OK(t, w.factory.Apps().V1().Deployments().Informer().GetStore().Add(d))
	w.wants("GET", "/ns/nb/", 409, "StatefulSet ns/nb and Deployment ns/nb are both notebooks")
	if got := w.patches(); len(got) != 0 {
		t.Errorf("scaled: %v", got)
	}
}

// A culled notebook stays where it is.
func TestCulled(t *testing.T) {
	w := newWorld(t)
	w.put(0, func(s *appsv1.StatefulSet) { s.Annotations[v1alpha1.AnnotationNotebook] = v1alpha1.NotebookCull })
	w.wants("GET", "/ns/nb/", 503, "the notebook is culled")
	if got := w.patches(); len(got) != 0 {
		t.Errorf("scaled: %v", got)
	}
}

// A notebook whose pod does not become ready is given up after a while.
func TestLate(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.HoldFor = time.Second })
	w.woken = func() { w.put(1, nil) }
	w.wants("GET", "/ns/nb/", 503, "StatefulSet ns/nb is not ready after 1s")
	w.wants("GET", "/ns/nb/api/kernels", 503, "is not ready after 1s") // it waits: somebody has woken the notebook
	if diff := cmp.Diff([]string{wakePatch}, w.patches()); diff != "" {
		t.Error(diff)
	}
}

// A size that changed in between is as good; a patch that fails is told.
func TestScaleFails(t *testing.T) {
	w := newWorld(t)
	w.scaleErr = errors.New("gone")
	w.wants("GET", "/ns/nb/", 502, "the notebook cannot be woken: scale StatefulSet ns/nb: gone")
	w.scaleErr = apierrors.NewInvalid(schema.GroupKind{Kind: "Scale"}, "nb", nil)
	type reply struct {
		code int
		body string
		err  error
	}
	answered := make(chan reply, 1)
	go func() {
		answer, err := http.Get(w.front.URL + "/ns/nb/")
		if err != nil {
			answered <- reply{err: err}
			return
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		answered <- reply{answer.StatusCode, string(body), err}
	}()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return len(w.patches()) == 2, nil }); err != nil {
		t.Fatalf("patches %q: %v", w.patches(), err)
	}
	w.put(1, nil)
	w.start()
	if got := <-answered; got.err != nil || got.code != http.StatusOK || !strings.HasPrefix(got.body, "GET /ns/nb/") {
		t.Errorf("%+v", got)
	}
}

// Requests that wait are bounded, for the notebooks of a namespace and together. Those that end make room.
func TestHeld(t *testing.T) {
	w := newWorld(t) // 16 in all, 2 of one namespace
	n, refused := w.find("/ns/nb/")
	if refused != nil {
		t.Fatal(refused.message)
	}
	_, first := w.hold(n)
	_, second := w.hold(n)
	if of, _ := w.hold(n); of != nil {
		t.Error("a third request of one notebook waits")
	}
	sibling := *n
	workload := *n.Workload
	workload.Name, sibling.Workload = "sibling", &workload
	if of, _ := w.hold(&sibling); of != nil {
		t.Error("a third request of one namespace waits")
	}
	w.wants("GET", "/ns/nb/", 503, "too many requests wait")
	first()
	if of, end := w.hold(n); of == nil {
		t.Error("no room after one has ended")
	} else {
		end()
	}
	second()
	var ends []func()
	for i := range 17 {
		other := *n
		copied := *n.Workload
		copied.Namespace, other.Workload = fmt.Sprint("ns", i), &copied
		of, end := w.hold(&other)
		if (of != nil) != (i < 16) {
			t.Errorf("request %d waits: %t", i, of != nil)
		}
		ends = append(ends, end)
	}
	for _, end := range ends[:16] {
		end()
	}
	if w.heldAll != 0 || len(w.held) != 0 || len(w.heldIn) != 0 {
		t.Errorf("%d requests are left, %v", w.heldAll, w.held)
	}
}

// A server that is gone is a bad gateway.
func TestProxyFails(t *testing.T) {
	w := newWorld(t)
	w.put(1, nil)
	w.start()
	w.pod.Close()
	w.wants("GET", "/ns/nb/", 502, "the notebook does not answer")
	if n := testutil.ToFloat64(w.metrics.failures); n != 1 {
		t.Errorf("%v failures", n)
	}
}

// Until it has read the API server, the activator does not say that there is no notebook.
func TestUnread(t *testing.T) {
	o := Options{Informers: informers.NewSharedInformerFactory(kubefake.NewClientset(), 0), HoldFor: time.Second, MostHeld: 1, MostConnections: 1}
	a, err := New(o)
	must.OK(t, err)
	r := httptest.NewRecorder()
	a.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/ns/nb/", nil))
	if r.Code != http.StatusServiceUnavailable || !strings.Contains(r.Body.String(), "not read yet") {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	for _, bad := range []Options{
		{HoldFor: time.Second, MostHeld: 1, MostConnections: 100_001}, {HoldFor: time.Second, MostHeld: 1, MostConnections: 1, StripCookies: []string{"a=b"}},
		{HoldFor: time.Second, MostHeld: 1, MostConnections: 1, StripHeaders: []string{"Host"}}, {HoldFor: 1, MostHeld: 1}, {HoldFor: 2 * time.Hour, MostHeld: 1}, {HoldFor: time.Second}, {HoldFor: time.Second, MostHeld: 100_001}} {
		if _, err := New(bad); err == nil {
			t.Errorf("%+v is legal", bad)
		}
	}
}

// The activator serves the metrics that the table, and so the reference page, says.
func TestMetricsAreThoseOfTheTable(t *testing.T) {
	w := newWorld(t)
	r := prometheus.NewRegistry()
	r.MustRegister(w.Collectors()...)
	servedmetrics.Check(t, r, "", Families())
}

// The transform keeps all that the activator reads.
func TestCondense(t *testing.T) {
	w := newWorld(t)
	w.put(1, func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.HostNetwork = true })
	w.start()
	s, err := w.statefulSets.StatefulSets("ns").Get("nb")
	must.OK(t, err)
	out, err := Condense(s)
	if diff := cmp.Diff(s, out); diff != "" || err != nil {
		t.Error(err, diff)
	}
	p, err := w.pods.Pods("ns").Get("nb-0")
	must.OK(t, err)
	full := p.DeepCopy()
	full.Spec.NodeName, full.Annotations = "n1", map[string]string{"large": "1"}
	out, err = Condense(full)
	if diff := cmp.Diff(p, out); diff != "" || err != nil {
		t.Error(err, diff)
	}
}
