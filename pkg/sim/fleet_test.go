package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// fleetAndTraining returns so many GPUs, a fleet of one to four whole GPUs that serves for half an hour, and a training of one to four
// workers that is as fast as it has workers, and takes two hours with one.
func fleetAndTraining(t *testing.T, gpus int, size func(time.Duration, int) (int, []sim.Need)) sim.Setup {
	t.Helper()
	n := testkit.Node(t, "n1", testkit.A100, gpus)
	n.SetRoom(plenty)
	s := sim.Setup{Nodes: []*vgpu.Node{n}, Queue: sim.Skip, Elastic: sim.ElasticConfig{Every: 10 * time.Second}}
	fleet := &sim.Gang{Name: "fleet", Elastic: &sim.Elastic{Sizes: []int{1, 2, 3, 4}, Fleet: &sim.Fleet{Size: size}}}
	training := &sim.Gang{Name: "training", Elastic: &sim.Elastic{Sizes: []int{1, 2, 3, 4}, Curve: elastic.Curve{Points: []elastic.Point{
		{Workers: 1, Rate: 1}, {Workers: 2, Rate: 2}, {Workers: 3, Rate: 3}, {Workers: 4, Rate: 4},
	}}}}
	for _, g := range []*sim.Gang{fleet, training} {
		for k := range 4 {
			job := sim.Job{Request: *testkit.Request(g.Name+string(rune('0'+k)), 10), Duration: 2 * time.Hour, Gang: g}
			if g == fleet {
				job.Duration, job.Request.Priority = 30*time.Minute, 1000
			}
			s.Jobs = append(s.Jobs, job)
		}
	}
	return s
}

// sizesOf returns the sizes of a gang with their times.
func sizesOf(h *sim.History, gang string) (all []string) {
	for i := range h.Gangs {
		if g := &h.Gangs[i]; g.Name == gang {
			for _, s := range g.Sizes {
				all = append(all, s.At.String()+" "+string(rune('0'+s.Workers)))
			}
		}
	}
	return all
}

// TestFleet: a fleet has the replicas that it wants, and a training gives GPUs up for it and takes them back. The fleet wants three replicas
// of four from 10 min on and one from 20 min on. Changes cost nothing here, so that all follow at once.
func TestFleet(t *testing.T) {
	var ran []int
	s := fleetAndTraining(t, 4, func(at time.Duration, running int) (int, []sim.Need) {
		ran = append(ran, running)
		if at >= 10*time.Minute && at < 20*time.Minute {
			return 3, nil
		}
		return 1, nil
	})
	h, err := sim.Run(s)
	must.OK(t, err)
	if diff := cmp.Diff([]string{"0s 1", "10m0s 3", "20m0s 1", "30m0s 0"}, sizesOf(h, "fleet")); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
	training := sizesOf(h, "training")
	for _, want := range []string{"10m0s 1", "20m0s 3", "30m0s 4"} {
		if !slices.Contains(training, want) {
			t.Errorf("the training has %v, want %s among them", training, want)
		}
	}
	if want := 30*6 - 1; len(ran) != want { // the fleet ends at 30 min, before the decision
		t.Errorf("the fleet was asked %d times, want %d", len(ran), want)
	}
	if ran[70] != 3 {
		t.Errorf("at 11m50s the fleet saw %d running replicas, want 3", ran[70])
	}
	if a := h.Gangs[0].Ended; a != 30*time.Minute {
		t.Errorf("the fleet ends at %v, want 30m", a)
	}
}

// TestFleetAlone: a fleet is asked until it ends, also where nothing has happened for hours.
func TestFleetAlone(t *testing.T) {
	s := fleetAndTraining(t, 4, func(at time.Duration, _ int) (int, []sim.Need) {
		if at >= 8*time.Hour {
			return 4, nil
		}
		return 1, nil
	})
	s.Jobs, s.Elastic.Horizon = s.Jobs[:4], 1
	for i := range s.Jobs {
		s.Jobs[i].Duration = 9 * time.Hour
	}
	h, err := sim.Run(s)
	must.OK(t, err)
	if diff := cmp.Diff([]string{"0s 1", "8h0m0s 4", "9h0m0s 0"}, sizesOf(h, "fleet")); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
}

// TestFleetReserves: GPUs that a fleet needs in half a minute are not lent to a training whose changes take a minute.
func TestFleetReserves(t *testing.T) {
	for _, tc := range []struct {
		name  string
		later []sim.Need
		want  int
	}{
		{"nothing later", nil, 3},
		{"all soon", []sim.Need{{In: 30 * time.Second, Replicas: 3}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fleetAndTraining(t, 4, func(time.Duration, int) (int, []sim.Need) { return 1, tc.later })
			s.Jobs[4].Gang.Elastic.ResizeTime = time.Minute
			h, err := sim.Run(s)
			must.OK(t, err)
			most := 0
			for _, size := range h.Gangs[1].Sizes {
				if size.At < 25*time.Minute {
					most = max(most, size.Workers)
				}
			}
			if most != tc.want {
				t.Errorf("the training has up to %d workers beside the fleet, want %d", most, tc.want)
			}
		})
	}
}

func TestRunRefusesBrokenFleets(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*sim.Setup)
		err    string
	}{
		{"no sizes wanted", func(s *sim.Setup) { s.Jobs[0].Gang.Elastic.Fleet.Size = nil },
			"run simulation: job 0 (pod fleet0): is a replica of a fleet that does not say how many replicas it wants"},
		{"no end", func(s *sim.Setup) {
			for i := range 4 {
				s.Jobs[i].Duration = 0
			}
		}, "run simulation: job 0 (pod fleet0): is a replica of a fleet that serves for ever, so that the run would have no end"},
		{"a cost", func(s *sim.Setup) { s.Jobs[0].Gang.Elastic.ResizeTime = time.Second },
			"run simulation: job 0 (pod fleet0): is a replica of a fleet, and a change of its size takes 1s, legal is 0s"},
		{"a size that is not legal", func(s *sim.Setup) {
			s.Jobs[0].Gang.Elastic.Fleet.Size = func(time.Duration, int) (int, []sim.Need) { return 5, nil }
		}, `run simulation: at 10s: fleet "fleet" wants 5 replicas, legal are [1 2 3 4]`},
		{"after nobody", func(s *sim.Setup) { s.Jobs[0].After = "x" },
			`run simulation: job 0 (pod fleet0): comes after UID "x", which is that of no job`},
		{"after a job that never ends", func(s *sim.Setup) {
			s.Jobs = append(s.Jobs, sim.Job{Request: *testkit.Request("x", 1)}, sim.Job{Request: *testkit.Request("y", 1), After: "x"})
		}, "run simulation: job 9 (pod y): comes after pod x, which never ends"},
		{"after itself", func(s *sim.Setup) {
			for i := range 8 {
				s.Jobs[i].After = "fleet0"
				if i < 4 {
					s.Jobs[i].After = "training0"
				}
			}
		}, "run simulation: job 0 (pod fleet0): comes after itself"},
		{"members after unlike jobs", func(s *sim.Setup) { s.Jobs[1].After = "training0" },
			`run simulation: job 1 (pod fleet1): comes after "training0", the first member of its gang after ""`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fleetAndTraining(t, 4, func(time.Duration, int) (int, []sim.Need) { return 1, nil })
			tc.change(&s)
			if _, err := sim.Run(s); err == nil || err.Error() != tc.err {
				t.Errorf("Run gives the error %v, want %s", err, tc.err)
			}
		})
	}
}

// TestAfter: a pod, then a gang, then a pod: each arrives a minute after the one before has ended, and waits for room where there is none.
func TestAfter(t *testing.T) {
	s := setup(t, 10, 5, 5, 2)
	g := &sim.Gang{Name: "g"}
	for i := range s.Jobs {
		s.Jobs[i].Arrive = time.Minute
	}
	s.Jobs[0].Arrive = 0
	s.Jobs[1].Gang, s.Jobs[2].Gang, s.Jobs[1].After, s.Jobs[2].After, s.Jobs[3].After = g, g, "a", "a", "b"
	blocker := sim.Job{Request: *testkit.Request("blocker", 1), Arrive: 10 * time.Minute, Duration: 3 * time.Minute}
	s.Jobs, s.Queue = append(s.Jobs, blocker), sim.Skip
	before := slices.Clone(s.Jobs)
	h, err := sim.Run(s)
	must.OK(t, err)
	for job, want := range map[int][3]time.Duration{0: {0, 0, 10}, 1: {11, 13, 23}, 2: {11, 13, 23}, 3: {24, 24, 34}} {
		o := &h.Outcomes[job]
		if got := [3]time.Duration{o.Arrived / time.Minute, o.Started / time.Minute, o.Ended / time.Minute}; got != want {
			t.Errorf("job %d arrives, starts and ends at %v min, want %v", job, got, want)
		}
	}
	if h.Gangs[0].Arrived != 11*time.Minute || h.Gangs[0].Wait() != 2*time.Minute {
		t.Errorf("the gang arrives at %v and waits for %v, want 11m and 2m", h.Gangs[0].Arrived, h.Gangs[0].Wait())
	}
	if diff := cmp.Diff(before, s.Jobs); diff != "" {
		t.Errorf("the run changed its jobs:\n%s", diff)
	}
}

// TestHoldings: a pod that is evicted has two places one after the other, and its work counts from its checkpoint.
func TestHoldings(t *testing.T) {
	s := setup(t, 10, 10)
	s.Queue, s.Preemption = sim.Skip, sim.PreemptionConfig{Policy: sim.PreemptTandem, Grace: 30 * time.Second}
	s.Jobs[0].Checkpoint, s.Jobs[1].Arrive, s.Jobs[1].Request.Priority = 2*time.Minute, 5*time.Minute, 1
	h, err := sim.Run(s)
	must.OK(t, err)
	type held struct {
		job      int
		from, to time.Duration
	}
	var got []held
	for _, x := range h.Holdings() {
		got = append(got, held{x.Job, x.From, x.To})
		if x.Assignment.Node != "n1" {
			t.Errorf("job %d was on node %q", x.Job, x.Assignment.Node)
		}
	}
	m, half := time.Minute, 30*time.Second
	want := []held{{0, 0, 5*m + half}, {1, 5*m + half, 15*m + half}, {0, 15*m + half, 21*m + half}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(held{})); diff != "" {
		t.Errorf("holdings (-want +got):\n%s", diff)
	}
	for at, want := range map[time.Duration]time.Duration{15 * m: 0, 16*m + half: 5 * m, 30 * m: 10 * m} {
		if got := h.Worked(0, at); got != want {
			t.Errorf("at %v the job has done %v, want %v", at, got, want)
		}
	}
}

// TestWorkedElastic: the work that an elastic gang has done follows its sizes. It has one worker until 10 s and three until 10 min.
func TestWorkedElastic(t *testing.T) {
	s := fleetAndTraining(t, 4, func(time.Duration, int) (int, []sim.Need) { return 1, nil })
	h, err := sim.Run(s)
	must.OK(t, err)
	for at, want := range map[time.Duration]time.Duration{
		10 * time.Second: 10 * time.Second, 10 * time.Minute: 10*time.Second + 3*590*time.Second, 2 * time.Hour: 2 * time.Hour,
	} {
		if got := h.Worked(4, at); got != want {
			t.Errorf("at %v the training has done %v, want %v", at, got, want)
		}
	}
}
