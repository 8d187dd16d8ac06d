package fleets

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// fakePrometheus speaks the HTTP API of Prometheus.
type fakePrometheus struct {
	*httptest.Server
	mu sync.Mutex
	// samples by query: a value, or several. A query that is not here has no sample.
	samples map[string][]string
	at      time.Time
	// lag is how old samples are.
	lag time.Duration
	// raw is an answer in place of all others, with its code.
	raw  string
	code int
	// asked are the queries since the start.
	asked map[string]int
}

func startPrometheus(t testing.TB) *fakePrometheus {
	p := &fakePrometheus{samples: map[string][]string{}, at: noon, asked: map[string]int{}}
	p.Server = httptest.NewServer(http.HandlerFunc(p.answer))
	t.Cleanup(p.Close)
	return p
}

func (p *fakePrometheus) answer(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.code != 0 {
		w.WriteHeader(p.code)
		fmt.Fprint(w, p.raw)
		return
	}
	if r.URL.Path != "/api/v1/query" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	query := r.FormValue("query")
	p.asked[query]++
	result := []any{}
	for i, value := range p.samples[query] {
		result = append(result, map[string]any{"metric": map[string]string{"i": fmt.Sprint(i)}, "value": []any{p.at.Unix(), value}})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}})
}

// measure makes a sample of each query.
func (w *world) measure(samples map[string]string) {
	w.prom.mu.Lock()
	defer w.prom.mu.Unlock()
	w.prom.samples = map[string][]string{}
	for query, value := range samples {
		w.prom.samples[query] = []string{value}
	}
}

// arrive makes so many requests a second arrive.
func (w *world) arrive(rate string) { w.measure(map[string]string{"rate": rate}) }
