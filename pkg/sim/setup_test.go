package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// setup returns one A100 with plenty of room, and jobs that ask for so many slots for ten minutes, a minute apart.
func setup(t *testing.T, slots ...vgpu.Slots) sim.Setup {
	t.Helper()
	n := testkit.Node(t, "n1", testkit.A100, 1)
	n.SetRoom(plenty)
	s := sim.Setup{Nodes: []*vgpu.Node{n}}
	for i, k := range slots {
		s.Jobs = append(s.Jobs, sim.Job{
			Request: *testkit.Request(string(rune('a'+i)), k), Arrive: time.Duration(i) * time.Minute, Duration: 10 * time.Minute,
		})
	}
	return s
}

func TestRunRefusesBrokenSetups(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*sim.Setup)
		err    string
	}{
		{"no nodes", func(s *sim.Setup) { s.Nodes = nil }, "run simulation: the cluster has no nodes"},
		{"a node twice", func(s *sim.Setup) { s.Nodes = append(s.Nodes, s.Nodes[0]) }, "run simulation: make cluster: node n1 appears twice"},
		{"admission with preemption", func(s *sim.Setup) {
			s.Queue, s.Preemption.Policy, s.Admits = sim.Skip, sim.PreemptTandem, func(int, string) bool { return true }
		}, "run simulation: nodes admit some jobs only, which is legal without preemption only"},
		{"requests that are renewed before", func(s *sim.Setup) { s.RenewMix = -time.Second },
			"run simulation: the learned requests are renewed every -1s, legal is 0s or more"},
		{"unknown queue", func(s *sim.Setup) { s.Queue = 3 }, "run simulation: unknown queue 3, known are drop, fifo, skip"},
		{"a UID twice", func(s *sim.Setup) { s.Jobs[1].Request.UID = "a" }, `run simulation: job 1 (pod b): UID "a" is that of job 0 too`},
		{"a UID of a pod that is there", func(s *sim.Setup) {
			must.OK(t, s.Nodes[0].Add(testkit.Assignment(t, s.Nodes[0], 0, "b", 1)))
		}, `run simulation: job 1 (pod b): UID "b" is on a node from the start`},
		{"no UID", func(s *sim.Setup) { s.Jobs[1].Request.UID = "" }, "run simulation: job 1 (pod b): has no UID"},
		{"before the start", func(s *sim.Setup) { s.Jobs[1].Arrive = -1 }, "run simulation: job 1 (pod b): arrives at -1ns, legal is 0s to 1281023h53m38.427387904s"},
		{"too late", func(s *sim.Setup) { s.Jobs[1].Arrive = math.MaxInt64 },
			"run simulation: job 1 (pod b): arrives at 2562047h47m16.854775807s, legal is 0s to 1281023h53m38.427387904s"},
		{"a negative duration", func(s *sim.Setup) { s.Jobs[1].Duration = -time.Second },
			"run simulation: job 1 (pod b): runs for -1s, legal is 0s (for ever) to 1281023h53m38.427387904s"},
		{"too long", func(s *sim.Setup) { s.Jobs[1].Duration = 1<<62 + 1 },
			"run simulation: job 1 (pod b): runs for 1281023h53m38.427387905s, legal is 0s (for ever) to 1281023h53m38.427387904s"},
		{"less than no CPU", func(s *sim.Setup) { s.Jobs[1].Request.Host.MilliCPU = -1 },
			"run simulation: job 1 (pod b): asks its host for -1m 0, legal is 0 or more"},
		{"less than no memory", func(s *sim.Setup) { s.Jobs[1].Request.Host.Memory = -1 },
			"run simulation: job 1 (pod b): asks its host for 0m -1, legal is 0 or more"},
		{"no slots", func(s *sim.Setup) { s.Jobs[1].Request.Containers[0].Slots = 0 },
			`run simulation: job 1 (pod b): validate request of pod b: container "c0" asks for 0 slots`},
		{"an end that never comes", func(s *sim.Setup) { s.Jobs[1].Duration, s.Jobs[1].DeclaresEnd = 0, true },
			"run simulation: job 1 (pod b): declares its end and stays for ever"},
		{"a drain in the past", func(s *sim.Setup) { s.Gangs.DrainAfter = -1 },
			"run simulation: drains begin after -1ns and end after 0s, legal is 0s to 1250h59m59.627370496s"},
		{"a drain that takes for ever", func(s *sim.Setup) { s.Gangs.DrainTimeout = 1<<52 + 1 },
			"run simulation: drains begin after 0s and end after 1250h59m59.627370497s, legal is 0s to 1250h59m59.627370496s"},
		{"a gang without a name", func(s *sim.Setup) { s.Jobs[1].Gang = &sim.Gang{} },
			`run simulation: job 1 (pod b): the name "" of its gang is empty, or that of another gang`},
		{"two gangs with one name", func(s *sim.Setup) { s.Jobs[0].Gang, s.Jobs[1].Gang = &sim.Gang{Name: "g"}, &sim.Gang{Name: "g"} },
			`run simulation: job 1 (pod b): the name "g" of its gang is empty, or that of another gang`},
		{"too many members wanted", func(s *sim.Setup) { s.Jobs[1].Gang = &sim.Gang{Name: "g", MinCount: 2} },
			"run simulation: gang g: the least number of members is 2, legal is 0 to 1"},
		{"fewer than no members wanted", func(s *sim.Setup) { s.Jobs[1].Gang = &sim.Gang{Name: "g", MinCount: -1} },
			"run simulation: gang g: the least number of members is -1, legal is 0 to 1"},
		{"members that come apart", func(s *sim.Setup) { join(s); s.Jobs[1].Arrive = time.Hour },
			"run simulation: job 1 (pod b): arrives at 1h0m0s, the first member of its gang at 0s"},
		{"members that end apart", func(s *sim.Setup) { join(s); s.Jobs[1].Duration = time.Hour },
			"run simulation: job 1 (pod b): runs for 1h0m0s, the first member of its gang for 10m0s"},
		{"members of which one declares its end", func(s *sim.Setup) { join(s); s.Jobs[1].DeclaresEnd = true },
			"run simulation: job 1 (pod b): declares its end and the first member of its gang does not, or the other way round"},
		{"members of unlike priority", func(s *sim.Setup) { join(s); s.Jobs[1].Request.Priority = 7 },
			"run simulation: job 1 (pod b): has the priority 7, the first member of its gang 0"},
		{"a level twice", func(s *sim.Setup) { join(s); s.Jobs[0].Gang.Wishes.Required = []string{"rack", "rack"} },
			"run simulation: at 0s: place gang g: level rack is listed twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := setup(t, 1, 2)
			tc.change(&s)
			h, err := sim.Run(s)
			if err == nil || err.Error() != tc.err || h != nil {
				t.Errorf("Run = %v, %v, want the error %s", h, err, tc.err)
			}
		})
	}
}

// join makes the first two jobs a gang.
func join(s *sim.Setup) {
	s.Jobs[0].Gang = &sim.Gang{Name: "g"}
	s.Jobs[1].Arrive, s.Jobs[1].Gang = s.Jobs[0].Arrive, s.Jobs[0].Gang
}

// TestRunToTheEndOfTime: jobs that wait for one another run up to the latest time, and not beyond.
func TestRunToTheEndOfTime(t *testing.T) {
	s := setup(t, 10, 10)
	s.Queue = sim.FIFO
	s.Jobs[0].Duration, s.Jobs[1].Duration = 1<<62, 1<<62-1
	h, err := sim.Run(s)
	if err != nil || h.Outcomes[1].Ended != math.MaxInt64 {
		t.Errorf("the second job ends at %v, %v", h.Outcomes[1].Ended, err)
	}
	s.Jobs[1].Duration++
	want := "run simulation: at 1281023h53m38.427387904s: pod b would end after the latest time, 2562047h47m16.854775807s"
	if _, err := sim.Run(s); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestQueueByName(t *testing.T) {
	for i, name := range sim.Queues() {
		if q, err := sim.QueueByName(name); err != nil || int(q) != i || q.String() != name {
			t.Errorf("QueueByName(%q) = %v, %v", name, q, err)
		}
	}
	_, err := sim.QueueByName("lifo")
	if want := `choose queue: unknown name "lifo", known are drop, fifo, skip`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestProgress(t *testing.T) {
	var got []int
	s := setup(t, slices.Repeat([]vgpu.Slots{1}, 26)...)
	s.Progress = func(done, total int) { got = append(got, done*1000+total) }
	if _, err := sim.Run(s); err != nil {
		t.Fatal(err)
	}
	if len(got) != 26 || got[0] != 1026 || got[25] != 26026 {
		t.Errorf("progress %v, want 1 to 26 of 26", got)
	}
}

// TestLearned: without given requests the usual ones are those that arrived. Pods of 3 slots lose nothing of a device with
// 4 free; the tenth pod asks for 10 slots, and from then on a tenth of the weight loses all of it.
func TestLearned(t *testing.T) {
	s := setup(t, 3, 3, 10)
	for i := range s.Jobs {
		s.Jobs[i].Duration = 0
	}
	h, err := sim.Run(s)
	must.OK(t, err)
	var got []vgpu.MilliGPU
	for _, sample := range h.Samples {
		got = append(got, sample.Fragmentation)
	}
	// After the third pod a third of the weight can use nothing of the 400 that are free.
	if diff := cmp.Diff([]vgpu.MilliGPU{0, 0, 133}, got); diff != "" {
		t.Errorf("fragmentation (-want +got):\n%s", diff)
	}
}

// TestProgressOfGangs: members count, and arrive together.
func TestProgressOfGangs(t *testing.T) {
	var got []int
	s := setup(t, 1, 1, 1)
	join(&s)
	s.Progress = func(done, total int) { got = append(got, done*1000+total) }
	if _, err := sim.Run(s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []int{2003, 3003}) {
		t.Errorf("progress %v, want 2 and 3 of 3", got)
	}
}

// TestBackfillToTheSecond: room that is kept until 10.9s counts as kept until 10s, so a pod that ends in the same second and
// later than the owner stays out.
func TestBackfillToTheSecond(t *testing.T) {
	for _, tc := range []struct {
		name string
		ends time.Duration
		in   bool
	}{
		{"before", 9 * time.Second, true},
		{"in the last whole second", 10 * time.Second, true},
		{"within the second", 10500 * time.Millisecond, false},
		{"after the owner", 10950 * time.Millisecond, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := testkit.Node(t, "n1", testkit.A100, 2)
			n.SetRoom(plenty)
			g := &sim.Gang{Name: "g"}
			job := func(pod string, slots vgpu.Slots, from, to time.Duration, own *sim.Gang) sim.Job {
				return sim.Job{Request: *testkit.Request(pod, slots), Arrive: from, Duration: to - from, DeclaresEnd: own == nil, Gang: own}
			}
			s := sim.Setup{Nodes: []*vgpu.Node{n}, Queue: sim.Skip, Gangs: sim.GangConfig{Drains: gang.AllDrains, DrainAfter: 2 * time.Second}, Jobs: []sim.Job{
				job("first", 10, 0, 3*time.Second, nil),
				job("g0", 10, time.Second, time.Minute, g), job("g1", 10, time.Second, time.Minute, g),
				job("owner", 10, 2*time.Second, 10900*time.Millisecond, nil), // it passes the gang over: room is kept from 3s on
				job("back", 10, 4*time.Second, tc.ends, nil),
			}}
			h, err := sim.Run(s)
			must.OK(t, err)
			if started := h.Outcomes[4].Started == 4*time.Second; started != tc.in || h.Gangs[0].Started != 10900*time.Millisecond {
				t.Errorf("the pod started at %v, the gang at %v", h.Outcomes[4].Started, h.Gangs[0].Started)
			}
		})
	}
}

func TestQuantileAndMean(t *testing.T) {
	four := []time.Duration{4, 1, 3, 2}
	for q, want := range map[float64]time.Duration{0: 1, .25: 1, .26: 2, .5: 2, .75: 3, .76: 4, .99: 4, 1: 4} {
		if got, ok := sim.Quantile(four, q); got != want || !ok {
			t.Errorf("Quantile(%v) = %v, %v, want %v", q, got, ok, want)
		}
	}
	if _, ok := sim.Quantile(nil, .5); ok {
		t.Error("there is a quantile of nothing")
	}
	for _, tc := range []struct {
		of   []time.Duration
		want time.Duration
	}{{four, 2}, {[]time.Duration{5}, 5}, {[]time.Duration{1, 2, 2}, 1}, {[]time.Duration{math.MaxInt64, math.MaxInt64}, math.MaxInt64}} {
		if got, ok := sim.Mean(tc.of); got != tc.want || !ok {
			t.Errorf("Mean(%v) = %v, %v, want %v", tc.of, got, ok, tc.want)
		}
	}
	if _, ok := sim.Mean(nil); ok {
		t.Error("there is a mean of nothing")
	}
	if !slices.Equal(four, []time.Duration{4, 1, 3, 2}) {
		t.Errorf("the values were sorted in place: %v", four)
	}
}

// TestUtilisation: 5 of 10 slots from 0m to 10m, 8 from 1m to 10m, then 3 to 11m.
func TestUtilisation(t *testing.T) {
	h, err := sim.Run(setup(t, 5, 3))
	must.OK(t, err)
	for _, tc := range []struct {
		from, to time.Duration
		want     float64
		ok       bool
	}{
		{0, time.Minute, .5, true},
		{0, 2 * time.Minute, .65, true},
		{30 * time.Second, 90 * time.Second, .65, true},
		{time.Minute, 10 * time.Minute, .8, true},
		{9 * time.Minute, 12 * time.Minute, (.8 + .3 + 0) / 3, true},
		{20 * time.Minute, 30 * time.Minute, 0, true},
		{time.Minute, time.Minute, 0, false},
		{2 * time.Minute, time.Minute, 0, false},
	} {
		got, ok := h.Utilisation(tc.from, tc.to)
		if ok != tc.ok || math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("Utilisation(%v, %v) = %v, %v, want %v, %v", tc.from, tc.to, got, ok, tc.want, tc.ok)
		}
	}
}
