package sim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// At each moment of any history the snapshot is sound, and shows what the map shows: the same shares, and as many pods that wait.
func TestSnapshotShowsTheMapProperty(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		s := randomEvictions(t, sim.PreemptTandem)
		if rapid.Bool().Draw(t, "without evictions") {
			s = randomSetup(t, allQueues...)
		}
		h := play(t, s)
		for _, sample := range h.Samples {
			checkSnapshot(t, h, sample.At, seen)
		}
	})
	for _, what := range []string{"pending", "gangs", "preemptions", "refusals"} {
		if seen[what] == 0 {
			t.Errorf("no snapshot has %s", what)
		}
	}
}

func checkSnapshot(t *rapid.T, h *sim.History, at time.Duration, seen map[string]int) {
	m, err := h.MapAt(at)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.SnapshotAt(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	c, err := s.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	got := vgpu.MapOf(c.Nodes())
	got.AtSeconds, got.Pending = m.AtSeconds, m.Pending
	if diff := cmp.Diff(text(t, m), text(t, got)); diff != "" {
		t.Fatalf("at %v (-map +snapshot):\n%s", at, diff)
	}
	waiting := map[vgpu.UID]bool{}
	for i := range s.Pending {
		waiting[s.Pending[i].UID] = true
		if s.Pending[i].Refused != nil {
			seen["refusals"]++
		}
	}
	for _, p := range m.Pending {
		if p.Slots > 0 && p.Members == 0 && !waiting[p.UID] {
			t.Fatalf("at %v pod %s waits in the map only", at, p.Pod)
		}
	}
	bound := 0
	for i := range s.Gangs {
		bound += s.Gangs[i].Bound
		if g := &s.Gangs[i]; g.Bound > g.Members || (g.Phase == "Running") != (g.Bound > 0) {
			t.Fatalf("at %v a gang is %+v", at, g)
		}
	}
	seen["pending"] += len(s.Pending)
	seen["gangs"] += len(s.Gangs)
	seen["preemptions"] += len(s.Preemptions)
	seen["bound"] += bound
}
