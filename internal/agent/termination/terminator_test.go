package termination

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
)

// A container that has its devices by itself is no client of MPS.
func TestWholeDevicesAreNoBusinessOfMPS(t *testing.T) {
	opened, err := allocation.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pod := fixture.Placed(t, "big", fixture.Want{Name: "main", Devices: []string{fixture.G0, fixture.G1}, Slots: 10})
	tm := New(Options{
		Inventory: inventory.New([]inventory.GPU{fixture.GPU(fixture.G0, 0, 0), fixture.GPU(fixture.G1, 1, 1)}, func(string) int { return 10 }), Records: opened,
	})
	big := podsource.NewTenant(pod)
	big.Kill = now
	tm.turn(t.Context(), map[types.UID]*podsource.Tenant{pod.UID: big}, now.Add(time.Hour))
	if len(tm.rounds) != 0 {
		t.Errorf("rounds %v, want none", tm.rounds)
	}
}

func TestEndComesTheMarginBeforeSIGKILL(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tm := New(Options{Margin: 3 * time.Second})
	in := func(kill time.Duration) *podsource.Tenant { return &podsource.Tenant{Kill: now.Add(kill)} }
	pods := map[types.UID]*podsource.Tenant{
		"lives": {}, "later": in(8 * time.Second), "at the margin": in(3 * time.Second), "within": in(time.Second), "late": in(-time.Hour),
	}
	due, next := tm.due(pods, now)
	var names []string
	for uid := range due {
		names = append(names, string(uid))
	}
	slices.Sort(names)
	if got := strings.Join(names, ", "); got != "at the margin, late, within" {
		t.Errorf("due: %s", got)
	}
	if next != 5*time.Second {
		t.Errorf("the next is due in %v, want 5s", next)
	}
	if _, next := tm.due(map[types.UID]*podsource.Tenant{"lives": {}}, now); next != loop.BeatEvery {
		t.Errorf("nobody leaves: %v", next)
	}
	if p := pauseFor(map[types.UID]*podsource.Tenant{"a": in(-time.Minute), "b": in(time.Second)}, now); p != endAgain {
		t.Errorf("pause %v while a kill is near", p)
	}
	if p := pauseFor(map[types.UID]*podsource.Tenant{"a": in(-time.Minute)}, now); p != endStuck {
		t.Errorf("pause %v for a pod that is stuck", p)
	}
}
