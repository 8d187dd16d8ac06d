package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/tandem-gpu/tandem/internal/activator"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// An address that is taken ends the program with an error that names it, and the other server ends too.
func TestServeTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer taken.Close()
	address := taken.Addr().String()
	err = serve(t.Context(), server("127.0.0.1:0", http.NotFoundHandler()), server(address, http.NotFoundHandler()))
	if err == nil || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("%v, want that %s is in use", err, address)
	}
}

// A request that has begun gets its answer after the program was told to end.
func TestServeEnds(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "answer")
	})
	address := ownAddress()
	ctx, end := context.WithCancel(t.Context())
	ended, answered := make(chan error, 1), make(chan error, 1)
	var answer string
	go func() { ended <- serve(ctx, server(address, h)) }()
	go func() {
		var err error
		answer, err = get(t.Context(), address)
		answered <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("serve ended before it was told to: %v", err)
	case err := <-answered:
		t.Fatalf("the request got %q, %v before it began", answer, err)
	}
	end()
	select {
	case err := <-ended:
		t.Fatalf("serve ended before the request did: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if err := <-answered; err != nil || answer != "answer" {
		t.Errorf("the request that had begun got %q, %v", answer, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve ends with %v", err)
	}
}

// ownAddress is a port of a loopback address of this process alone, so that no other program has taken it.
func ownAddress() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:9410", 1+pid>>16, pid>>8&0xff, pid&0xff) // a PID has 22 bits
}

// get waits until a server listens at an address, and returns what it answers.
func get(ctx context.Context, address string) (body string, err error) {
	err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, http.NoBody)
		if err != nil {
			return false, err
		}
		answer, err := http.DefaultClient.Do(request)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		read, err := io.ReadAll(answer.Body)
		body = string(read)
		return true, err
	})
	return body, err
}

// ask sends a request to a handler.
func ask(h http.Handler, path string) (code int, body string) {
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return r.Code, r.Body.String()
}

// The program is alive at once, and ready once it has seen the workloads and the pods.
func TestProbes(t *testing.T) {
	client := fake.NewClientset()
	o := activator.Options{Kube: client, Informers: informers.NewSharedInformerFactory(client, 0), Recorder: events.NewFakeRecorder(1), HoldFor: time.Minute, MostHeld: 8, MostConnections: 8}
	a, err := activator.New(o)
	must.OK(t, err)
	h, err := probes(a)
	must.OK(t, err)
	if code, _ := ask(h, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d", code)
	}
	if code, body := ask(h, "/readyz"); code != http.StatusServiceUnavailable || body == "" {
		t.Errorf("/readyz before anything was seen: %d %q", code, body)
	}
	o.Informers.StartWithContext(t.Context())
	o.Informers.WaitForCacheSyncWithContext(t.Context())
	if code, body := ask(h, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz after all was seen: %d %q", code, body)
	}
	if code, body := ask(h, "/metrics"); code != http.StatusOK || !strings.Contains(body, "tandem_build_info{") || !strings.Contains(body, "tandem_activator_") {
		t.Errorf("/metrics: %d\n%s", code, body)
	}
}

// startFront runs the server of the proxy with room for so many connections, and returns its address once it listens. Notebook ns/nb answers requests without
// reading their bodies, as a server does with one that is too large, but for /ns/nb/echo; ns/culled stays at zero.
func startFront(t *testing.T, connections int, change func(*http.Server)) (address string) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "notebook")
		if r.URL.Path == "/ns/nb/echo" {
			_, _ = io.Copy(w, r.Body)
		}
	}))
	t.Cleanup(pod.Close)
	_, port, err := net.SplitHostPort(pod.Listener.Addr().String())
	must.OK(t, err)
	notebook := func(name, mode string, replicas int32) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "set", Annotations: map[string]string{
				v1alpha1.AnnotationNotebook: mode, v1alpha1.AnnotationNotebookPort: port, v1alpha1.AnnotationNotebookPath: "/ns/" + name,
			}},
			Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
		}
	}
	client := fake.NewClientset(notebook("nb", v1alpha1.NotebookPark, 1), notebook("culled", v1alpha1.NotebookCull, 0), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nb-0", Labels: map[string]string{"app": "nb"}, OwnerReferences: []metav1.OwnerReference{{UID: "set", Controller: new(true)}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, PodIP: "127.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	})
	s := &settings{address: ownAddress()}
	s.activator = activator.Options{
		Kube: client, Informers: informers.NewSharedInformerFactory(client, 0), Recorder: events.NewFakeRecorder(10), HoldFor: time.Minute, MostHeld: 8, MostConnections: connections,
	}
	a, err := activator.New(s.activator)
	must.OK(t, err)
	s.activator.Informers.StartWithContext(t.Context())
	s.activator.Informers.WaitForCacheSyncWithContext(t.Context())
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	front := s.front(a)
	change(front)
	go func() { ended <- serve(ctx, front) }()
	t.Cleanup(func() {
		end()
		must.OK(t, <-ended)
	})
	_, err = get(t.Context(), s.address+"/")
	must.OK(t, err)
	http.DefaultClient.CloseIdleConnections()
	return s.address
}

// connect opens a connection and sends what a client begins with. The connection is closed a minute later at the latest, which only a hang reaches.
func connect(t *testing.T, address, sends string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	must.OK(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must.OK(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, sends)
	must.OK(t, err)
	return c
}

// Clients that announce bodies and never send them have all connections. They get their answers, lose the connections soon, and a good request is answered.
func TestBodiesThatDoNotCome(t *testing.T) {
	const connections = 8
	for name, test := range map[string]struct {
		path, headers, want string
	}{
		"no such notebook":         {"/ns/absent/", "Content-Length: 100000", "404 Not Found"},
		"chunked":                  {"/ns/absent/", "Transfer-Encoding: chunked", "404 Not Found"},
		"not before a word":        {"/ns/absent/", "Content-Length: 100\r\nExpect: 100-continue", "404 Not Found"},
		"an ambiguous path":        {"/ns/../nb/", "Content-Length: 100000", "400 Bad Request"},
		"a culled notebook":        {"/ns/culled/", "Content-Length: 100000", "503 Service Unavailable"},
		"answered by the notebook": {"/ns/nb/", "Content-Length: 1000000", "200 OK"},
	} {
		t.Run(name, func(t *testing.T) {
			address := startFront(t, connections, func(*http.Server) {})
			var held []net.Conn
			for range connections {
				held = append(held, connect(t, address, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", test.path, test.headers)))
			}
			got := 0
			for i, c := range held {
				answer, err := io.ReadAll(c)
				if err != nil {
					t.Fatalf("client %d, which sent no body, got %q, %v", i, answer, err)
				}
				if strings.HasPrefix(string(answer), "HTTP/1.1 "+test.want+"\r\n") {
					got++
				}
			}
			if got == 0 { // others were one too many for their namespace, or beside the connection that saw whether the server listens
				t.Errorf("no client got %s", test.want)
			}
			var body string
			if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
				var err error
				body, err = get(ctx, address+"/ns/nb/")
				return body == "notebook" && err == nil, nil // the server notices half a second later that a client has gone
			}); err != nil {
				t.Errorf("a good request got %q, %v", body, err)
			}
		})
	}
}

// The body of a request for a notebook may take longer than that of another one.
func TestBodyThatTakesItsTime(t *testing.T) {
	address := startFront(t, 8, func(s *http.Server) { s.ReadTimeout = time.Nanosecond })
	c := connect(t, address, "POST /ns/nb/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))) // the activator reads the body
	must.OK(t, err)
	_, err = io.WriteString(c, "hello")
	must.OK(t, err)
	if answer, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(answer), "notebookhello") {
		t.Errorf("%q, %v", answer, err)
	}
}

// The front has no more connections than the flag says: one more closes the oldest that has no request.
func TestFrontIsBounded(t *testing.T) {
	address := startFront(t, 2, func(s *http.Server) { s.ReadHeaderTimeout = time.Hour })
	oldest := connect(t, address, "")
	connect(t, address, "")
	connect(t, address, "")
	if rest, err := io.ReadAll(oldest); len(rest) > 0 || err != nil {
		t.Errorf("the oldest of three connections got %q, %v", rest, err)
	}
}

// oneConnection is a listener with one connection.
type oneConnection chan net.Conn

func (l oneConnection) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l oneConnection) Close() error   { return nil }
func (l oneConnection) Addr() net.Addr { return &net.TCPAddr{} }

// A body that no handler reads may come for as long as headers may: also one of a request that the server refuses by itself, for what it expects.
func TestBodiesThatNobodyReads(t *testing.T) {
	for name, header := range map[string]string{"unread": "Content-Length: 100000", "refused by the server": "Content-Length: 100\r\nExpect: a miracle"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, end := net.Pipe()
				defer client.Close()
				l := make(oneConnection, 1)
				l <- end
				close(l)
				go func() { _ = server("", http.NotFoundHandler()).Serve(l) }()
				began := time.Now()
				must.OK(t, client.SetDeadline(began.Add(time.Minute)))
				_, err := fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", header)
				must.OK(t, err)
				answer, err := io.ReadAll(client)
				if took := time.Since(began); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 4") || took > headersWithin {
					t.Errorf("after %v: %q, %v", took, answer, err)
				}
			})
		})
	}
}
