package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// there puts a job of a setup on the first device from the start.
func there(t *testing.T, s *sim.Setup, job int, ran time.Duration) {
	t.Helper()
	a, refusal := placement.Assign(s.Nodes[0], &s.Jobs[job].Request, placement.Policy{})
	if refusal != nil {
		t.Fatal(refusal)
	}
	s.Jobs[job].At, s.Jobs[job].Ran, s.Jobs[job].Arrive = &a, ran, 0
}

// A pod that is there from the start ends after the rest of its time, and the pod behind it starts then.
func TestThereFromTheStart(t *testing.T) {
	s := setup(t, 8, 8)
	there(t, &s, 0, 4*time.Minute)
	s.Jobs[0].DeclaresEnd, s.Queue = true, sim.Skip
	h, err := sim.Run(s)
	must.OK(t, err)
	if a, b := h.Outcomes[0], h.Outcomes[1]; a.Started != 0 || a.Ended != 6*time.Minute || b.Started != 6*time.Minute {
		t.Errorf("the pod that is there ends at %v, want 6m; the other starts at %v", a.Ended, b.Started)
	}
	snap, err := h.SnapshotAt(time.Minute)
	must.OK(t, err)
	p := &snap.Nodes[0].Pods[0]
	if p.Since.Unix() != -240 || p.EndsBy.Unix() != 360 {
		t.Errorf("in the snapshot the pod is there since %v and ends by %v, want 4 minutes before and 6 minutes after the start", p.Since, p.EndsBy)
	}
	if first := h.Samples[0]; first.At != 0 || first.Allocated != 800 || first.Running != 1 {
		t.Errorf("the first sample is %+v, want 800 thousandths of a GPU of one pod", first)
	}
}

// A pod that is there can be evicted, loses the work that it did before the start, and comes back.
func TestThereAndEvicted(t *testing.T) {
	s := setup(t, 8, 8)
	there(t, &s, 0, 4*time.Minute)
	s.Jobs[1].Request.Priority, s.Queue, s.Preemption.Policy = 1, sim.Skip, sim.PreemptTandem
	s.Jobs[0].DeclaresEnd = true
	h, err := sim.Run(s)
	must.OK(t, err)
	if snap, err := h.SnapshotAt(30 * time.Second); err != nil || !snap.Nodes[0].Pods[0].EndsBy.IsZero() {
		t.Errorf("the end that the victim declared at first is not known any more, and the snapshot has %+v, %v", snap.Nodes[0].Pods[0], err)
	}
	if o := h.Outcomes[0]; o.Evictions != 1 || o.Lost != 800*300 || o.Ended != 21*time.Minute {
		t.Errorf("evictions %d, lost %d, ended %v; want 1, 800 × 300 s, and 21m: it begins anew when the other has ended", o.Evictions, o.Lost, o.Ended)
	}
}

// A gang that is there runs as one, and is evicted as one.
func TestGangThereFromTheStart(t *testing.T) {
	s := setup(t, 3, 3, 8)
	g := &sim.Gang{Name: "a/g"}
	for i := range 2 {
		s.Jobs[i].Gang = g
		there(t, &s, i, time.Minute)
	}
	s.Jobs[2].Request.Priority, s.Queue, s.Preemption.Policy = 1, sim.Skip, sim.PreemptTandem
	h, err := sim.Run(s)
	must.OK(t, err)
	if h.Gangs[0].Evictions != 1 || h.Gangs[0].State != sim.Finished || h.Outcomes[2].Started != 2*time.Minute {
		t.Errorf("the gang is %+v, the preemptor starts at %v", h.Gangs[0], h.Outcomes[2].Started)
	}
}

// Room that is kept from the start goes to its pod, and to nobody else of the same priority before.
func TestKeptFromTheStart(t *testing.T) {
	s := setup(t, 8, 8)
	s.Jobs[0].Arrive, s.Jobs[1].Arrive, s.Queue = time.Minute, 0, sim.Skip
	hold := vgpu.Hold{Assignment: testkit.Assignment(t, s.Nodes[0], 0, "a", 8)}
	must.OK(t, s.Nodes[0].Hold(hold))
	h, err := sim.Run(s)
	must.OK(t, err)
	if a, b := h.Outcomes[0], h.Outcomes[1]; a.Started != time.Minute || b.Started != 11*time.Minute {
		t.Errorf("the pod of the kept room starts at %v and the other at %v, want 1m and 11m", a.Started, b.Started)
	}
}

// The room of a preemption takes the place of room that is kept from the start, in the run and in its pictures.
func TestKeptFromTheStartAndAgain(t *testing.T) {
	s := setup(t, 8, 8)
	hold := vgpu.Hold{Assignment: testkit.Assignment(t, s.Nodes[0], 0, "b", 8)}
	there(t, &s, 0, 0)
	must.OK(t, s.Nodes[0].Hold(hold))
	s.Jobs[1].Request.Priority, s.Queue = 1, sim.Skip
	s.Preemption = sim.PreemptionConfig{Policy: sim.PreemptTandem, Grace: time.Minute}
	h, err := sim.Run(s)
	must.OK(t, err)
	m, err := h.MapAt(90 * time.Second)
	if err != nil || len(m.Nodes[0].Devices[0].Slices) != 2 || !m.Nodes[0].Devices[0].Slices[1].Held {
		t.Errorf("the picture is %+v, %v", m.Nodes, err)
	}
	if h.Outcomes[1].Started != 2*time.Minute {
		t.Errorf("the preemptor starts at %v, want 2m", h.Outcomes[1].Started)
	}
}

// Times in a snapshot are those of the run: the end of a pod that waits, and the time for which room is kept.
func TestTimesOfSnapshot(t *testing.T) {
	s := setup(t, 10, 10)
	there(t, &s, 0, 0)
	s.Jobs[0].DeclaresEnd, s.Jobs[1].DeclaresEnd, s.Jobs[1].Gang, s.Queue = true, true, &sim.Gang{Name: "g"}, sim.Skip
	s.Gangs = sim.GangConfig{Drains: gang.BoundedDrains, DrainAfter: time.Minute}
	h, err := sim.Run(s)
	must.OK(t, err)
	snap, err := h.SnapshotAt(9 * time.Minute) // the end is within a fourth of the time that the gang has waited
	must.OK(t, err)
	if ends := snap.Pending[0].Request.EndsAfterSeconds; ends != 600 {
		t.Errorf("the pod that waits runs for %d s, want 600", ends)
	}
	if holds := snap.Nodes[0].Holds; len(holds) != 1 || holds[0].Until.Unix() != 600 {
		t.Errorf("room is kept: %+v, want until 600 s", holds)
	}
}

func TestRunRefusesBrokenStarts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*sim.Setup)
		says   string
	}{
		{"on no node", func(s *sim.Setup) { s.Jobs[0].At.Node = "n9" }, `on node "n9"`},
		{"of another pod", func(s *sim.Setup) { s.Jobs[0].At.UID = "z" }, `UID "z"`},
		{"arrives too", func(s *sim.Setup) { s.Jobs[0].Arrive = 1 }, "is there from the start and arrives later"},
		{"comes after another", func(s *sim.Setup) { s.Jobs[0].After = "b" }, "is there from the start and arrives later"},
		{"has ended", func(s *sim.Setup) { s.Jobs[0].Ran = 10 * time.Minute }, "has run for 10m0s"},
		{"ran nowhere", func(s *sim.Setup) { s.Jobs[1].Ran = 1 }, "has run for 1ns"},
		{"half a gang", func(s *sim.Setup) { join(s) }, "is there from the start and the first member of its gang is not"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := setup(t, 2, 2)
			s.Jobs[1].Arrive = 0
			there(t, &s, 0, 0)
			tc.change(&s)
			if _, err := sim.Run(s); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the error is %v, want %q in it", err, tc.says)
			}
		})
	}
}
