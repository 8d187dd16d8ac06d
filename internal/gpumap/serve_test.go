package gpumap_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestListen(t *testing.T) {
	for address, want := range map[string]error{
		"127.0.0.1:0": nil, "localhost:0": nil, "0.0.0.0:0": gpumap.ErrNotLoopback, ":0": gpumap.ErrNotLoopback, "192.0.2.7:0": gpumap.ErrNotLoopback,
		"loopback.example:0": gpumap.ErrNotLoopback,
	} {
		l, err := gpumap.Listen(context.Background(), address, false)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", address, err, want)
		}
		if l != nil {
			l.Close()
		}
	}
	if _, err := gpumap.Listen(context.Background(), "8080", false); err == nil || !strings.Contains(err.Error(), "127.0.0.1:8080") {
		t.Errorf("an address without a port: %v", err)
	}
	l, err := gpumap.Listen(context.Background(), "0.0.0.0:0", true)
	if err != nil {
		t.Fatalf("for anyone: %v", err)
	}
	l.Close()
}

// TestServe: a loopback address answers requests for itself, refuses those for other hosts, and ends with its context.
func TestServe(t *testing.T) {
	l, err := gpumap.Listen(context.Background(), "127.0.0.1:0", false)
	must.OK(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- gpumap.Serve(ctx, l, gpumap.Handler(one{})) }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must.OK(t, err)
	for host, want := range map[string]int{
		l.Addr().String(): http.StatusOK, "localhost:" + port: http.StatusOK, "[::1]:" + port: http.StatusOK,
		"evil.example": http.StatusForbidden, "evil.example:" + port: http.StatusForbidden, "192.0.2.7": http.StatusForbidden,
	} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/", http.NoBody)
		must.OK(t, err)
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		must.OK(t, err)
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("Host %s: %d, want %d: %.100s", host, answer.StatusCode, want, body)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
