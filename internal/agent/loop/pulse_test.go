package loop

import (
	"strings"
	"testing"
	"time"
)

func TestStuckLoopsAreUnhealthy(t *testing.T) {
	p := NewPulse()
	p.Of("sweep")()
	p.Of("health")()
	now := time.Now()
	if stuck := p.Stuck(now); len(stuck) != 0 {
		t.Errorf("fresh loops: %v", stuck)
	}
	if stuck := p.Stuck(now.Add(beatLimit + time.Second)); len(stuck) != 2 || !strings.Contains(stuck[0], "health") {
		t.Errorf("silent loops: %v, want both by name", stuck)
	}
}
