package worker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Metric is the name of the counter of samples, whose increase is the worker's rate.
const Metric = "trainer_samples_total"

// Samples counts samples and serves the count to Prometheus and to Tandem's agent.
type Samples struct{ done atomic.Int64 }

// Add counts samples.
func (s *Samples) Add(n int) { s.done.Add(int64(n)) }

// ServeHTTP answers in Prometheus' text format.
func (s *Samples) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, "# HELP %[1]s Samples whose gradients the servers have.\n# TYPE %[1]s counter\n%[1]s %[2]d\n", Metric, s.done.Load())
}

// Serve serves the count under /metrics at an address until the context is done, and returns the address.
func (s *Samples) Serve(ctx context.Context, address string) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go server.Serve(listener) //nolint:errcheck // it ends with the context
	return listener.Addr().String(), nil
}
