package deviceplugin

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// beatEvery is how often a loop that only waits shows that it is alive.
	beatEvery = 10 * time.Second
	// beatLimit is the silence after which a loop counts as stuck. It is above the longest single step of any loop.
	beatLimit = 90 * time.Second
)

// pulse knows when each loop last turned.
type pulse struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newPulse() *pulse { return &pulse{last: map[string]time.Time{}} }

// of returns the function by which a loop shows that it turns; the loop counts from its first call.
func (p *pulse) of(loop string) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.last[loop] = time.Now()
	}
}

// stuck names the loops that have been silent for too long.
func (p *pulse) stuck(now time.Time) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for loop, at := range p.last {
		if now.Sub(at) > beatLimit {
			names = append(names, fmt.Sprintf("%s has not turned for %s", loop, now.Sub(at).Round(time.Second)))
		}
	}
	slices.Sort(names)
	return names
}

// handler serves /healthz, /readyz and /metrics.
func handler(p *pulse, ready func() error, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if stuck := p.stuck(time.Now()); len(stuck) > 0 {
			http.Error(w, fmt.Sprint(stuck), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}
