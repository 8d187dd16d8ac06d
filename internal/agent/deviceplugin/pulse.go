package deviceplugin

import (
	"fmt"
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
