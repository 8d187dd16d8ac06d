package fleets

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
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

// A namespace whose Prometheus does not answer keeps no other namespace waiting: as many fleets of it as may be are asked
// at a time, and they have their answers only when the other one has its.
func TestNamespacesAreMeasuredSideBySide(t *testing.T) {
	w := newWorld(t)
	w.arrive("60")
	full, other := make(chan struct{}), make(chan struct{})
	var asked atomic.Int32
	var once sync.Once
	slow := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // a server sees that its client leaves when it has read the request
		if asked.Add(1) == together {
			close(full)
		}
		select {
		case <-other:
			w.prom.answer(out, r)
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	quick := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		select {
		case <-full:
			once.Do(func() { close(other) })
			w.prom.answer(out, r)
		case <-r.Context().Done():
		}
	}))
	defer quick.Close()
	all := append(fleetsAt(t, "team-a", slow.URL, 2*together), fleetsAt(t, "team-b", quick.URL, 1)...)
	for i, m := range w.measuredAll(t.Context(), all, w.at) {
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
	for i, m := range w.measuredAll(ctx, fleetsAt(t, "team-a", hangs.URL, together+3), w.at) {
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

// After the end nobody enters a room, even if it has a place.
func TestEnter(t *testing.T) {
	room := make(chan struct{}, 1)
	if !enter(t.Context(), room) || len(room) != 1 {
		t.Error("a free place was not taken")
	}
	<-room
	ended, end := context.WithCancel(t.Context())
	end()
	for range 100 {
		if enter(ended, room) || len(room) != 0 {
			t.Fatal("a place was taken after the end")
		}
	}
}

// measuredAll measures fleets and waits for all of them.
func (w *world) measuredAll(ctx context.Context, fleets []*v1alpha1.InferenceFleet, now time.Time) []measurement {
	results, ready := w.measureAll(ctx, fleets, now)
	for range fleets {
		<-ready
	}
	return results
}

// A namespace whose Prometheus does not answer delays no decision on a fleet of another one, even one that comes later in turn: it is scaled while the other one is
// still asked.
func TestDecisionsDoNotWaitForOthers(t *testing.T) {
	w := newWorld(t)
	w.arrive("120")
	scaled := make(chan struct{})
	var once sync.Once
	var late atomic.Bool
	slow := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // a server sees that its client leaves when it has read the request
		select {
		case <-scaled:
			w.prom.answer(out, r)
		case <-r.Context().Done():
			late.Store(true)
		}
	}))
	defer slow.Close()
	w.before = func(what string) error {
		if what == "scale bert-a100" {
			once.Do(func() { close(scaled) })
		}
		return nil
	}
	other := fleetsAt(t, "a-namespace", slow.URL, 1)[0]
	other.UID, other.Spec.Variants = "other", other.Spec.Variants[:1]
	other.Spec.Variants[0].ScaleTargetRef.Name = "other"
	must.OK(t, w.objects.Create(t.Context(), other))
	if got := w.pass(); late.Load() || w.replicas["bert-a100"] != 3 {
		t.Errorf("the pass writes %q, and the other fleet was given up: %v", got, late.Load())
	}
}
