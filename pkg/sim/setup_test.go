package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
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
		{"unknown queue", func(s *sim.Setup) { s.Queue = 3 }, "run simulation: unknown queue 3, known are drop, fifo, skip"},
		{"a UID twice", func(s *sim.Setup) { s.Jobs[1].Request.UID = "a" }, `run simulation: job 1 (pod b): UID "a" is that of job 0 too`},
		{"a UID of a pod that is there", func(s *sim.Setup) {
			if err := s.Nodes[0].Add(testkit.Assignment(t, s.Nodes[0], 0, "b", 1)); err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	var got []vgpu.MilliGPU
	for _, sample := range h.Samples {
		got = append(got, sample.Fragmentation)
	}
	// After the third pod a third of the weight can use nothing of the 400 that are free.
	if diff := cmp.Diff([]vgpu.MilliGPU{0, 0, 133}, got); diff != "" {
		t.Errorf("fragmentation (-want +got):\n%s", diff)
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
	if err != nil {
		t.Fatal(err)
	}
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

func TestThin(t *testing.T) {
	h, err := sim.Run(setup(t, slices.Repeat([]vgpu.Slots{1}, 9)...))
	if err != nil {
		t.Fatal(err)
	}
	n := len(h.Samples)
	for _, most := range []int{2, 3, 7, n, n + 1} {
		thin := h.Thin(most)
		if len(thin) != min(most, n) || thin[0] != h.Samples[0] || thin[len(thin)-1] != h.Samples[n-1] {
			t.Errorf("Thin(%d) of %d samples is %v", most, n, thin)
		}
	}
}
