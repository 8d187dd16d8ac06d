package fleets

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// fleetsAt returns fleets of a namespace with a Prometheus at an address.
func fleetsAt(t *testing.T, namespace, address string, count int) (all []*v1alpha1.InferenceFleet) {
	t.Helper()
	for i := range count {
		f := read[v1alpha1.InferenceFleet](t, bert)
		f.Namespace, f.Name = namespace, fmt.Sprint("f", i)
		f.Spec.Metrics.PrometheusURL = address
		all = append(all, f)
	}
	return all
}

// A namespace whose Prometheus does not answer keeps no other namespace waiting: it answers only when the other one has been asked.
func TestNamespacesAreMeasuredSideBySide(t *testing.T) {
	w := newWorld(t)
	w.arrive("60")
	other := make(chan struct{})
	var once sync.Once
	slow := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // a server sees that its client leaves when it has read the request
		select {
		case <-other:
			w.prom.answer(out, r)
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	quick := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(other) })
		w.prom.answer(out, r)
	}))
	defer quick.Close()
	all := append(fleetsAt(t, "team-a", slow.URL, 2*together), fleetsAt(t, "team-b", quick.URL, 1)...)
	for i, m := range w.measureAll(t.Context(), all, w.at) {
		if m.problem != nil || m.rate != 60 {
			t.Errorf("fleet %s/%s: %v requests a second, %v", all[i].Namespace, all[i].Name, m.rate, m.problem)
		}
	}
}

// A fleet that had no turn in time is unmeasured, and says so.
func TestFleetsWithoutATurn(t *testing.T) {
	w := newWorld(t)
	ctx, end := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	asked.Add(together)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Done()
		_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client leaves when it has read the request
		<-r.Context().Done()
	}))
	defer hangs.Close()
	go func() { asked.Wait(); end() }()
	waited := 0
	for i, m := range w.measureAll(ctx, fleetsAt(t, "team-a", hangs.URL, together+3), w.at) {
		if m.problem == nil || m.problem.reason != reasonUnreachable || len(m.variants) != 2 {
			t.Errorf("fleet %d: %+v", i, m)
		}
		if strings.HasPrefix(m.problem.message, "it was not measured: Prometheus took 10s for the other fleets of the namespace") {
			waited++
		}
	}
	if waited != 3 {
		t.Errorf("%d fleets had no turn, want 3: %d of %d have one at a time", waited, together, together+3)
	}
}
