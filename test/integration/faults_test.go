package integration

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/test/must"
)

// fault is what the proxy does to one request that binds a pod.
type fault string

const (
	none fault = "none"
	// refuse…: the API server never sees the request.
	refuse409 fault = "refused with 409"
	refuse429 fault = "refused with 429"
	refuse500 fault = "refused with 500"
	// done…: the pod is bound and the answer says otherwise.
	done409 fault = "done, answered with 409"
	done429 fault = "done, answered with 429"
	done500 fault = "done, answered with 500"
	done504 fault = "done, answered as a timeout"
	doneCut fault = "done, connection cut"
	// late: the answer is 500 now and the request takes effect a moment later.
	late fault = "answered with 500, done later"
	// tooLate: as late, after the scheduler has given up.
	tooLate fault = "answered with 500, done after the bind timed out"
)

var faults = []fault{none, refuse409, refuse429, refuse500, done409, done429, done500, done504, doneCut, late}

const (
	// faultsPerPod bounds the faults of one pod, so that every pod can be bound in the end.
	faultsPerPod = 3
	lateBy       = 300 * time.Millisecond
	// tooLateBy is beyond bindTimeout.
	tooLateBy = bindTimeout + time.Second
	// watchLag is how late the scheduler's watches show what happens: a busy API server's come late, and a bind may time out before.
	watchLag = 2 * bindTimeout
	// readsRefused is how many reads of every fourth pod are refused: more than one bind makes before it times out.
	readsRefused = 8
)

// faultyServer stands between the scheduler and an API server.
type faultyServer struct {
	upstream http.RoundTripper
	target   *url.URL
	forward  *httputil.ReverseProxy
	// config is for clients of the faulty server.
	config *rest.Config

	mu       sync.Mutex
	attempts map[string]int
	// reads counts, by path, the requests that read one pod.
	reads  map[string]int
	counts map[fault]int
	// accepted counts, by path, the binds that the API server accepted.
	accepted map[string]int
	// unknown has the paths of binds of which the API server itself did not tell whether it accepted them, as it may under load.
	unknown map[string]bool
	pending sync.WaitGroup
}

func newFaultyServer(t *testing.T, upstream *rest.Config) *faultyServer {
	t.Helper()
	transport, err := rest.TransportFor(upstream)
	must.OK(t, err)
	target, err := url.Parse(upstream.Host)
	must.OK(t, err)
	f := &faultyServer{
		upstream: transport, target: target,
		attempts: map[string]int{}, reads: map[string]int{}, counts: map[fault]int{}, accepted: map[string]int{}, unknown: map[string]bool{},
	}
	f.forward = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	t.Cleanup(f.pending.Wait)
	if upstream.Transport != nil { // of a bubble, which a connection would leave
		f.config = rest.CopyConfig(upstream)
		f.config.Transport = handled{f}
		return f
	}
	server := httptest.NewServer(f)
	f.config = &rest.Config{Host: server.URL, QPS: -1}
	t.Cleanup(func() { closeServer(server) })
	return f
}

// ServeHTTP passes everything on but what binds pods and the first reads of some pods. It passes on late what a watch sends.
func (f *faultyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && f.refusesToRead(r.URL.Path) {
		f.answer(w, failure(http.StatusInternalServerError))
		return
	}
	if r.URL.Query().Has("watch") {
		late := lagBehind(w)
		defer late.end()
		f.forward.ServeHTTP(late, r)
		return
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/binding") {
		f.forward.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch kind := f.choose(r.URL.Path); kind {
	case none:
		f.answer(w, f.bind(r, body))
	case refuse409, refuse429, refuse500:
		f.answer(w, failure(codeOf(kind)))
	case done409, done429, done500, done504:
		_ = f.bind(r, body)
		f.answer(w, failure(codeOf(kind)))
	case doneCut:
		_ = f.bind(r, body)
		panic(http.ErrAbortHandler)
	case late, tooLate:
		f.bindLater(r, body, kind)
		f.answer(w, failure(http.StatusInternalServerError))
	}
}

// lagging passes on, in order and watchLag later, what is written to it.
type lagging struct {
	http.ResponseWriter
	written chan lateBytes
	ended   chan struct{}
}

type lateBytes struct {
	due  time.Time
	data []byte
}

func lagBehind(w http.ResponseWriter) *lagging {
	l := &lagging{ResponseWriter: w, written: make(chan lateBytes, 1<<14), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for chunk := range l.written {
			time.Sleep(time.Until(chunk.due)) // this delay is the fault that the test injects: a watch that is late
			_, _ = w.Write(chunk.data)        // a client that left is one more fault
			_ = http.NewResponseController(w).Flush()
		}
	}()
	return l
}

func (l *lagging) Write(data []byte) (int, error) {
	l.written <- lateBytes{due: time.Now().Add(watchLag), data: bytes.Clone(data)}
	return len(data), nil
}

// Flush does nothing: written bytes are flushed when they are passed on.
func (l *lagging) Flush() {}

func (l *lagging) end() {
	close(l.written)
	<-l.ended
}

// refusesToRead reports whether a request reads one pod and is to fail. Without these failures every bind would learn its outcome,
// also after an answer that lies.
func (f *faultyServer) refusesToRead(path string) bool {
	if !strings.Contains(path, "/pods/pod-") {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[path]++
	return isUnreadable(path) && f.reads[path] <= readsRefused
}

// isUnreadable reports whether the first reads of the pod at a path fail.
func isUnreadable(path string) bool { return hashOf(path)%4 == 0 }

func hashOf(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // a hash takes everything
	return h.Sum32()
}

// choose returns the fault of a request, the same in every run, and counts it.
func (f *faultyServer) choose(path string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	attempt := f.attempts[path]
	f.attempts[path]++
	kind := none
	switch {
	case strings.Contains(path, "/too-late-"):
		// The first attempt takes effect after all others of the same bind were refused.
		if kind = refuse500; attempt == 0 {
			kind = tooLate
		} else if attempt > 10 {
			kind = none
		}
	case isUnreadable(strings.TrimSuffix(path, "/binding")):
		// Every answer is a refusal, and the first one lies.
		if attempt == 0 {
			kind = done409
		}
	case attempt < faultsPerPod:
		kind = faults[hashOf(fmt.Sprintf("%s#%d", path, attempt))%uint32(len(faults))]
	}
	f.counts[kind]++
	return kind
}

func codeOf(kind fault) int {
	switch kind {
	case refuse409, done409:
		return http.StatusConflict
	case refuse429, done429:
		return http.StatusTooManyRequests
	case done504:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// reply is an answer of the API server, read to its end.
type reply struct {
	code        int
	contentType string
	body        []byte
}

// bind sends the request to the API server and returns its answer.
func (f *faultyServer) bind(r *http.Request, body []byte) reply {
	out, err := http.NewRequest(r.Method, f.target.JoinPath(r.URL.Path).String(), bytes.NewReader(body))
	if err != nil {
		return failure(http.StatusBadGateway)
	}
	out.Header = r.Header.Clone()
	answer, err := f.upstream.RoundTrip(out)
	if err != nil {
		f.note(r.URL.Path, http.StatusBadGateway)
		return failure(http.StatusBadGateway)
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	f.note(r.URL.Path, answer.StatusCode)
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return failure(http.StatusBadGateway)
	}
	return reply{code: answer.StatusCode, contentType: answer.Header.Get("Content-Type"), body: content}
}

// note notes the code with which the API server answered a bind.
func (f *faultyServer) note(path string, code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case code == http.StatusCreated:
		f.accepted[path]++
	case code >= http.StatusInternalServerError:
		f.unknown[path] = true
	}
}

func (f *faultyServer) bindLater(r *http.Request, body []byte, kind fault) {
	wait := lateBy
	if kind == tooLate {
		wait = tooLateBy
	}
	f.pending.Add(1)
	time.AfterFunc(wait, func() {
		defer f.pending.Done()
		_ = f.bind(r, body)
	})
}

func (f *faultyServer) answer(w http.ResponseWriter, from reply) {
	w.Header().Set("Content-Type", from.contentType)
	w.WriteHeader(from.code)
	_, _ = w.Write(from.body) // a client that left is one more fault
}

// failure is an answer of the API server with the code.
func failure(code int) reply {
	reason := map[int]string{
		http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests",
		http.StatusInternalServerError: "InternalError", http.StatusGatewayTimeout: "Timeout",
	}[code]
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"injected","code":%d}`, reason, code)
	return reply{code: code, contentType: "application/json", body: []byte(body)}
}
