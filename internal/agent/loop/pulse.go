package loop

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// BeatEvery is how often a loop that only waits shows that it is alive.
	BeatEvery = 10 * time.Second
	// beatLimit is the silence after which a loop counts as stuck. The longest single step of any loop is shorter.
	beatLimit = 90 * time.Second
)

// Pulse knows when each loop last turned.
type Pulse struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// NewPulse returns a pulse that knows no loop.
func NewPulse() *Pulse { return &Pulse{last: map[string]time.Time{}} }

// Of returns the function by which a loop shows that it turns; the loop counts from its first call.
func (p *Pulse) Of(loop string) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.last[loop] = time.Now()
	}
}

// Stuck names the loops that have been silent for too long.
func (p *Pulse) Stuck(now time.Time) []string {
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
