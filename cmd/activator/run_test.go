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
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/tandem-gpu/tandem/internal/activator"
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
