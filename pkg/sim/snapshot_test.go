package sim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// At each moment of any history the snapshot is sound, and shows what the map shows: the same shares, and as many pods that wait.
func TestSnapshotShowsTheMapProperty(t *testing.T) {
	seen := map[string]int{}
	check := func(t *rapid.T, s sim.Setup) {
		h := play(t, s)
		for _, sample := range h.Samples {
			checkSnapshot(t, &s, h, sample.At, seen)
		}
	}
	rapid.Check(t, func(t *rapid.T) { check(t, randomSetup(t, allQueues...)) })
	rapid.Check(t, func(t *rapid.T) {
		s := randomEvictions(t, sim.PreemptTandem)
		s.Preemption.Grace = max(s.Preemption.Grace, time.Second) // a snapshot shows victims that leave
		check(t, s)
	})
	for _, what := range []string{"pending", "gangs", "preemptions", "refusals"} {
		if seen[what] == 0 {
			t.Errorf("no snapshot has %s", what)
		}
	}
}

func checkSnapshot(t *rapid.T, setup *sim.Setup, h *sim.History, at time.Duration, seen map[string]int) {
	m, err := h.MapAt(at)
	must.OK(t, err)
	s, err := h.SnapshotAt(at)
	must.OK(t, err)
	must.OK(t, s.Check())
	c, err := s.Cluster()
	must.OK(t, err)
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
	checkSnapshotGangs(t, setup, s)
	seen["pending"] += len(s.Pending)
	seen["gangs"] += len(s.Gangs)
	seen["preemptions"] += len(s.Preemptions)
}

// checkSnapshotGangs compares the members of gangs that have a node with the pods on the nodes, where all of them have shares.
func checkSnapshotGangs(t *rapid.T, setup *sim.Setup, s *snapshot.Snapshot) {
	without, on := map[string]bool{}, map[string]int{}
	for i := range setup.Jobs {
		if j := &setup.Jobs[i]; j.Gang != nil && len(j.Request.Containers) == 0 {
			without[j.Gang.Name] = true
		}
	}
	path := func(g *snapshot.GangName) string {
		return (&snapshot.Name{Namespace: g.Namespace, Name: g.Name}).Path()
	}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			if g := s.Nodes[i].Pods[k].Gang; g != nil {
				on[path(g)]++
			}
		}
	}
	wishes := map[string]gang.Wishes{}
	for i := range setup.Jobs {
		if g := setup.Jobs[i].Gang; g != nil {
			wishes[g.Name] = g.Wishes
		}
	}
	for i := range s.Gangs {
		g := &s.Gangs[i]
		name := path(&g.GangName)
		asked := gang.Wishes{Required: g.RequiredTopology, Preferred: g.PreferredTopology}
		if diff := cmp.Diff(wishes[name], asked, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("gang %s asks for other levels (-setup +snapshot):\n%s", name, diff)
		}
		if g.Bound > g.Members || (g.Phase == "Running") != (g.Bound > 0) || !without[name] && g.Bound != on[name] {
			t.Fatalf("at %v %d pods of a gang are on nodes, and it is %+v", s.At, on[name], g)
		}
		delete(on, name)
	}
	if len(on) > 0 {
		t.Fatalf("at %v gangs on nodes are not listed: %v", s.At, on)
	}
}
