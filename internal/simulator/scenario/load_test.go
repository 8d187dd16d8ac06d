package scenario_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/test/must"
)

// underLoad plays examples/gang-under-load.yaml at a load in percent, with or without drains, and returns the longest wait of
// the gang.
func underLoad(t *testing.T, percent int, drains bool) time.Duration {
	t.Helper()
	data, err := os.ReadFile("../../../examples/gang-under-load.yaml")
	must.OK(t, err)
	text, _, _ := strings.Cut(string(data), "assertions:")
	change := func(before, after string) {
		if strings.Count(text, before) != 1 {
			t.Fatalf("the example has %d times %q", strings.Count(text, before), before)
		}
		text = strings.Replace(text, before, after, 1)
	}
	for _, perHour := range []int{175, 350} {
		change(fmt.Sprintf("per_hour: %d, count: %d", perHour, 8*perHour),
			fmt.Sprintf("per_hour: %d, count: %d", perHour*percent/90, 8*perHour*percent/90))
	}
	change("[tandem, packed]", "[packed]")
	change("seeds: 42-46", "seeds: 42-44")
	if !drains {
		change("{drain: enabled", "{drain: disabled")
	}
	s, err := scenario.Parse("example.yaml", []byte(text))
	must.OK(t, err)
	r, err := s.Play(nil)
	must.OK(t, err)
	longest := time.Duration(0)
	for i := range r.Runs {
		g := &r.Runs[i].History.Gangs[0]
		if g.State != sim.Finished {
			t.Fatalf("at %d %% with seed %d: the gang is %v", percent, r.Runs[i].Seed, g.State)
		}
		longest = max(longest, g.Wait())
	}
	return longest
}

// TestGangUnderLoad: whatever the load, a gang of half the cluster starts within twice the longest small pod, an hour; without
// drains it waits until nothing comes any more.
func TestGangUnderLoad(t *testing.T) {
	for _, percent := range []int{50, 70, 90, 95} {
		if wait := underLoad(t, percent, true); wait > 2*time.Hour {
			t.Errorf("at %d %% the gang waits %v", percent, wait)
		}
	}
	if wait := underLoad(t, 90, false); wait < 3*time.Hour {
		t.Errorf("the gang waits %v without drains: the example shows nothing", wait)
	}
}
