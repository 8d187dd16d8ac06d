package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// crowdedSetup draws a full cluster on which pods come and go, and up to three gangs that they pass over for longer than the pause
// between two looks whether room is kept for a gang.
func crowdedSetup(t *rapid.T) sim.Setup {
	seconds := func(low, high int, what string) time.Duration {
		return time.Duration(rapid.IntRange(low, high).Draw(t, what)) * time.Second
	}
	s := sim.Setup{Queue: rapid.SampledFrom([]sim.Queue{sim.FIFO, sim.Skip, sim.Skip}).Draw(t, "queue"), Mix: usual(t)}
	for i := range rapid.IntRange(1, 2).Draw(t, "nodes") {
		n := healthy(t, fmt.Sprintf("n%d", i))
		n.SetRoom(vgpu.Room{MilliCPU: 20, Memory: 1 << 50})
		s.Nodes = append(s.Nodes, n)
	}
	for i := range rapid.IntRange(8, 24).Draw(t, "pods") {
		r := share(fmt.Sprintf("p%d", i), rapid.SampledFrom([]vgpu.Slots{5, 10, 10}).Draw(t, "slots"))
		r.Priority, r.Host.MilliCPU = int32(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "priority")), int64(rapid.IntRange(0, 4).Draw(t, "cpu"))
		s.Jobs = append(s.Jobs, sim.Job{
			Request: r, Arrive: seconds(0, 90, "arrive"), Duration: seconds(5, 40, "duration"), DeclaresEnd: rapid.Bool().Draw(t, "declares its end"),
		})
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "gangs") {
		g := &sim.Gang{Name: fmt.Sprintf("g%d", 2-i)} // the order of the names is not that of the jobs
		arrive, priority := seconds(0, 40, "arrive"), int32(rapid.IntRange(0, 2).Draw(t, "priority"))
		for k := range rapid.IntRange(2, 2*len(s.Nodes)).Draw(t, "members") {
			r := share(fmt.Sprintf("%s-%d", g.Name, k), 10)
			r.Priority, r.Host.MilliCPU = priority, int64(rapid.IntRange(0, 12).Draw(t, "cpu"))
			s.Jobs = append(s.Jobs, sim.Job{Request: r, Arrive: arrive, Duration: 10 * time.Second, Gang: g})
		}
	}
	s.Gangs = sim.GangConfig{
		Drains:     rapid.SampledFrom([]gang.Drains{gang.BoundedDrains, gang.AllDrains, gang.AllDrains}).Draw(t, "drains"),
		DrainAfter: seconds(0, 5, "drain after"), DrainTimeout: time.Duration(rapid.SampledFrom([]int{0, 0, 3, 20}).Draw(t, "timeout")) * time.Second,
	}
	return s
}

// TestDrainsAgreeWithTwinProperty: where gangs wait long enough that room is kept for them, the history is that of the twin, too.
func TestDrainsAgreeWithTwinProperty(t *testing.T) {
	drained := 0
	rapid.Check(t, func(t *rapid.T) {
		s := crowdedSetup(t)
		h := play(t, s)
		for i := range h.Gangs {
			drained += h.Gangs[i].Drains
		}
		if diff := cmp.Diff(twin(t, s), brief(h)); diff != "" {
			t.Fatalf("the twin says otherwise (-twin +sim):\n%s", diff)
		}
	})
	if drained == 0 {
		t.Error("room is kept for a gang in no history")
	}
	t.Logf("room was kept %d times", drained)
}
