package integration

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// patient returns a configuration for clients of the tests, which send a request again that the API server could not serve in time. On a starved
// machine etcd may stall for longer than the API server waits for it. The requests that the tests check have other clients.
func patient(api *rest.Config) *rest.Config {
	api = rest.CopyConfig(api)
	api.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &retrying{next: next, pause: 500 * time.Millisecond}
	})
	return api
}

// retrying sends a request again while its context lasts, for patience at most, where it is not known whether it took effect, and where a second
// effect does no harm. The second request may find the effect of the first: the answer then is as if there had been one request.
type retrying struct {
	next  http.RoundTripper
	pause time.Duration
}

// RoundTrip sends a request until it is answered.
func (r *retrying) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := contents(request)
	if err != nil || !repeatable(request, body) {
		return r.send(request, body, err)
	}
	end := time.After(patience)
	for again := false; ; again = true {
		answer, err := r.send(request, body, nil)
		if !unanswered(answer, err) {
			if again && err == nil {
				return r.once(request, body, answer)
			}
			return answer, err
		}
		select {
		case <-request.Context().Done():
			return answer, err
		case <-end:
			return answer, err
		case <-time.After(r.pause):
		}
		if err == nil {
			_ = answer.Body.Close() // it was read
		}
	}
}

// send sends a request once, where its body could be read.
func (r *retrying) send(request *http.Request, body []byte, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	request = request.Clone(request.Context())
	if body != nil {
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r.next.RoundTrip(request)
}

// once returns the answer that the first of several requests would have had, where the last answer tells that the first had an effect.
func (r *retrying) once(request *http.Request, body []byte, answer *http.Response) (*http.Response, error) {
	address := request.URL.String()
	switch {
	case request.Method == http.MethodDelete && answer.StatusCode == http.StatusNotFound:
		_ = answer.Body.Close()
		done := []byte(`{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
		return &http.Response{
			Status: "200 OK", StatusCode: http.StatusOK, Proto: answer.Proto, Request: request, ContentLength: int64(len(done)),
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(done)),
		}, nil
	case answer.StatusCode != http.StatusConflict:
		return answer, nil
	case request.Method == http.MethodPost && bytes.Contains(peek(answer), []byte(metav1.StatusReasonAlreadyExists)):
		address = fmt.Sprintf("%s://%s%s/%s", request.URL.Scheme, request.URL.Host, request.URL.Path, accessor(body).GetName())
	case request.Method != http.MethodPut:
		return answer, nil
	}
	get, err := http.NewRequestWithContext(request.Context(), http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	get.Header.Set("Accept", request.Header.Get("Accept"))
	now, err := r.RoundTrip(get)
	if err == nil && request.Method == http.MethodPut && !written(body, peek(now)) {
		_ = now.Body.Close()
		return answer, nil // the conflict is with another writer
	}
	_ = answer.Body.Close()
	return now, err
}

// jsonPatchOnce finds in a JSON patch what has another effect when it is applied again.
var jsonPatchOnce = regexp.MustCompile(`"op":\s*"(remove|move|copy|test)"|/(\d+|-)"`)

// repeatable tells whether a request may be sent twice. An object whose name the API server makes would be there twice; two tokens do no harm.
func repeatable(r *http.Request, body []byte) bool {
	switch r.Method {
	case http.MethodGet, http.MethodDelete, http.MethodPut:
		return true
	case http.MethodPatch:
		return r.Header.Get("Content-Type") != string(types.JSONPatchType) || !jsonPatchOnce.Match(body)
	case http.MethodPost:
		return accessor(body).GetName() != "" || strings.HasSuffix(r.URL.Path, "/token")
	}
	return false
}

// unanswered tells whether a request may or may not have taken effect.
func unanswered(answer *http.Response, err error) bool {
	switch {
	case err != nil:
		return utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsTimeout(err)
	case answer.StatusCode == http.StatusInternalServerError:
		text := peek(answer)
		return slices.ContainsFunc([]string{"etcdserver: request timed out", "etcdserver: leader changed"}, func(s string) bool { return bytes.Contains(text, []byte(s)) })
	}
	return answer.StatusCode == http.StatusGatewayTimeout
}

// contents returns the body of a request, nil for none.
func contents(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

// peek returns what it can read of the body of an answer, which can still be read afterwards.
func peek(answer *http.Response) []byte {
	text, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(text))
	return text
}

// written tells whether an object is as it was sent, but for what the API server counts.
func written(sent, now []byte) bool {
	a, b := accessor(sent), accessor(now)
	for _, o := range []metav1.Object{a, b} {
		o.SetResourceVersion("")
		o.SetGeneration(0)
		o.SetManagedFields(nil)
	}
	return a.GetUID() != "" && equality.Semantic.DeepEqual(a, b)
}

// accessor decodes an object in JSON or protobuf; it returns an empty one where it cannot.
func accessor(raw []byte) metav1.Object {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		object, _, err = unstructured.UnstructuredJSONScheme.Decode(raw, nil, nil)
	}
	if err == nil {
		if o, err := meta.Accessor(object); err == nil {
			return o
		}
	}
	return &metav1.ObjectMeta{}
}

// stalls is an API server that carries out the first request of each method and answers that etcd does not, or not at all.
type stalls struct {
	t      *testing.T
	refuse func(http.ResponseWriter)

	mu      sync.Mutex
	object  runtime.Object // nil while there is none
	methods []string
}

func (s *stalls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !slices.Contains(s.methods, r.Method)
	s.methods = append(s.methods, r.Method)
	exists := s.object != nil
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	var said error
	switch r.Method {
	case http.MethodPost:
		if exists {
			said = apierrors.NewAlreadyExists(v1.Resource("pods"), "a")
		} else {
			s.object = s.decode(body)
		}
	case http.MethodPut:
		if !first {
			said = apierrors.NewConflict(v1.Resource("pods"), "a", nil)
		} else {
			s.object = s.decode(body)
		}
	case http.MethodDelete:
		if !exists {
			said = apierrors.NewNotFound(v1.Resource("pods"), "a")
		}
		s.object = nil
	}
	if first {
		s.refuse(w)
		return
	}
	s.answer(w, said)
}

func (s *stalls) decode(body []byte) runtime.Object {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		object, _, err = unstructured.UnstructuredJSONScheme.Decode(body, nil, nil)
	}
	if err != nil {
		s.t.Error(err)
	}
	return object
}

func (s *stalls) answer(w http.ResponseWriter, said error) {
	object, code := s.object, http.StatusOK
	if status, ok := said.(apierrors.APIStatus); ok {
		whole := status.Status()
		whole.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		object, code = &whole, int(whole.Code)
	} else if object == nil {
		object = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := unstructured.UnstructuredJSONScheme.Encode(object, w); err != nil {
		if text, err := runtime.Encode(scheme.Codecs.LegacyCodec(v1.SchemeGroupVersion, metav1.Unversioned), object); err == nil {
			_, _ = w.Write(text)
		}
	}
}

// TestRetries has each request of a client of the tests carried out and not answered at first.
func TestRetries(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(http.ResponseWriter){
		"etcd stalls": func(w http.ResponseWriter) {
			http.Error(w, "etcdserver: request timed out", http.StatusInternalServerError)
		},
		"a minute ends":     func(w http.ResponseWriter) { http.Error(w, "Timeout", http.StatusGatewayTimeout) },
		"a lost connection": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := startStalls(t, refuse)
			pods := clientFor(t, api).CoreV1().Pods("default")
			p, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}, metav1.CreateOptions{})
			if err != nil || p.Name != "a" {
				t.Fatalf("Create returns %v, %v", p, err)
			}
			if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("Create returns %v for one that is there", err)
			}
			p.Labels = map[string]string{"app": "a"}
			if p, err = pods.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil || p.Labels["app"] != "a" {
				t.Fatalf("Update returns %v, %v", p, err)
			}
			if _, err := pods.Update(t.Context(), p, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("Update returns %v for a change since", err)
			}
			if _, err := pods.Patch(t.Context(), "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
			if err := pods.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			if err := pods.Delete(t.Context(), "a", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("Delete returns %v for one that is gone", err)
			}
		})
		t.Run(name+" for a custom resource", func(t *testing.T) {
			t.Parallel()
			client, err := dynamic.NewForConfig(patient(startStalls(t, refuse)))
			must.OK(t, err)
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
			o.SetName("a")
			if o, err = client.Resource(v1alpha1.WorkloadProfiles).Namespace("default").Create(t.Context(), o, metav1.CreateOptions{}); err != nil || o.GetName() != "a" {
				t.Errorf("Create returns %v, %v", o, err)
			}
		})
	}
}

// TestNoRetry has requests whose first answer counts.
func TestNoRetry(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, kind, body string
		code               int
		says               string
	}{
		"another failure":          {http.MethodGet, "", "", http.StatusInternalServerError, "out of memory"},
		"a refusal":                {http.MethodDelete, "", "", http.StatusForbidden, "etcdserver: request timed out"},
		"a name that is made":      {http.MethodPost, "application/json", `{"kind":"Pod","apiVersion":"v1","metadata":{"generateName":"a-"}}`, http.StatusGatewayTimeout, ""},
		"a patch that adds twice":  {http.MethodPatch, string(types.JSONPatchType), `[{"op": "add", "path": "/spec/rules/-", "value": 1}]`, http.StatusGatewayTimeout, ""},
		"a patch that takes twice": {http.MethodPatch, string(types.JSONPatchType), `[{"op": "remove", "path": "/spec/rules/a"}]`, http.StatusGatewayTimeout, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var count atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				count.Add(1)
				http.Error(w, test.says, test.code)
			}))
			t.Cleanup(server.Close)
			request, err := http.NewRequestWithContext(t.Context(), test.method, server.URL, strings.NewReader(test.body))
			must.OK(t, err)
			request.Header.Set("Content-Type", test.kind)
			answer, err := (&retrying{next: http.DefaultTransport}).RoundTrip(request)
			must.OK(t, err)
			defer answer.Body.Close()
			if count.Load() != 1 || answer.StatusCode != test.code {
				t.Errorf("%d requests, the answer is %d", count.Load(), answer.StatusCode)
			}
		})
	}
}

func startStalls(t *testing.T, refuse func(http.ResponseWriter)) *rest.Config {
	t.Helper()
	server := httptest.NewServer(&stalls{t: t, refuse: refuse})
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}
