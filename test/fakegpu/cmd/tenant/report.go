package main

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// askEvery is the pause between two reads of the tenant's progress. Smaller follows a change of neighbours more
// closely.
const askEvery = 50 * time.Millisecond

// reporter counts the steps that a tenant pretends to do.
type reporter struct {
	client    *fakegpu.Client
	rate, lie float64

	mu         sync.Mutex
	last       time.Time
	now, steps float64
}

// report serves the rate of a tenant until the caller calls end.
func report(client *fakegpu.Client, o options) (end func(), err error) {
	listener, err := net.Listen("tcp", o.serve)
	if err != nil {
		return nil, err
	}
	r := &reporter{client: client, rate: o.rate, lie: o.lie, last: time.Now()}
	if err := r.advance(); err != nil {
		_ = listener.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", r)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends with end
	go r.run()
	return func() { _ = server.Close() }, nil
}

// run works until the context breaks.
func (r *reporter) run() {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for r.advance() == nil {
		select {
		case <-r.client.Done():
			return
		case <-tick.C:
		}
	}
}

// advance adds the work since the last time at the speed of now.
func (r *reporter) advance() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	speed, err := r.client.Progress()
	if err != nil {
		return err
	}
	now := time.Now()
	r.now = r.rate * speed * r.lie
	r.steps += r.now * now.Sub(r.last).Seconds()
	r.last = now
	return nil
}

// ServeHTTP writes the work until now.
func (r *reporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := r.advance(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, "# TYPE tenant_rate gauge\ntenant_rate %g\n# TYPE tenant_steps_total counter\ntenant_steps_total %g\n", r.now, r.steps)
}
