package experiment

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/plots"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/test/must"
)

// One GPU of 10 slots. At 0 s a takes 5 slots for 10 s; at 2 s b wants all 10 for 5 s and waits until 10 s; at 20 s c takes
// 5 slots for ever.
const drawn = `
name: drawn
cluster:
  groups:
  - {name: n, count: 1, cpu: 8, memory: 64Gi, gpus: 1, model: T4, device_memory: 16Gi}
workload:
  jobs:
  - {name: a, arrive: 0s, duration: 10s, slots: 5}
  - {name: b, arrive: 2s, duration: 5s, slots: 10}
  - {name: c, arrive: 20s, slots: 5}
policies: [packed]
queue: fifo
seeds: "7"
typical: {requests: [{slots: 10}]}
`

func play(t *testing.T, text string) *scenario.Result {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(text))
	must.OK(t, err)
	r, err := s.Play(nil)
	must.OK(t, err)
	return r
}

func TestScenarioFigures(t *testing.T) {
	figures := Figures(play(t, drawn))
	points := map[string][]plots.Point{}
	for _, f := range figures {
		if f.Of == "" {
			t.Errorf("%s does not say which scenario it is of", f.File)
		}
		if f.File == "lost" {
			if len(f.Series) > 0 {
				t.Errorf("%s has the series %v, and nobody is evicted", f.File, f.Series)
			}
			continue
		}
		if len(f.Series) != 1 || f.Series[0].Name != "packed" {
			t.Fatalf("%s has the series %v", f.File, f.Series)
		}
		points[f.File] = f.Series[0].Points
	}
	if _, ok := points["allocation"]; ok {
		t.Error("jobs end, and what was allocated is drawn over what arrived")
	}
	// Two of three jobs end, after 10 s and 13 s.
	want := []plots.Point{{}, {X: 10, Y: 100. / 3}, {X: 13, Y: 200. / 3}}
	if diff := cmp.Diff(want, points["jct_cdf"]); diff != "" {
		t.Errorf("completion times (-want +got):\n%s", diff)
	}
	used := points["utilisation"]
	for _, tc := range []struct {
		at time.Duration
		y  float64
	}{{time.Second, 50}, {11 * time.Second, 100}, {16 * time.Second, 0}} {
		if got := used[int(tc.at*timeSteps/(20*time.Second))]; got.Y != tc.y {
			t.Errorf("utilisation at %v is %v, want %v", tc.at, got, tc.y)
		}
	}
	// While a has half of the GPU, the other half is of no use to pods that want a whole one.
	idle := points["fragmentation"]
	if at1, at11 := idle[1*timeSteps/20], idle[11*timeSteps/20]; at1.Y != 50 || at11.Y != 0 {
		t.Errorf("fragmentation after 1 s is %v and after 11 s %v, want 50 and 0", at1, at11)
	}
	// b waits for a, from 2 s to 10 s.
	if diff := cmp.Diff([]plots.Point{{Y: 200. / 3}, {X: 8, Y: 100}}, points["wait_cdf"]); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

// TestFiguresOfNoEnd: where no job ends, allocation is drawn over what arrived, and completion times are left out.
func TestFiguresOfNoEnd(t *testing.T) {
	r := play(t, `
name: endless
cluster: {groups: [{name: n, count: 1, cpu: 8, memory: 64Gi, gpus: 1, model: T4, device_memory: 16Gi}]}
workload: {jobs: [{name: a, slots: 10}, {name: b, slots: 10}]}
policies: [packed]
queue: drop
`)
	points := map[string]int{}
	for _, f := range Figures(r) {
		for _, s := range f.Series {
			points[f.File] += len(s.Points)
		}
	}
	if points["jct_cdf"] > 0 || points["allocation"] == 0 {
		t.Errorf("the figures have %v points, want allocation and no jct_cdf", points)
	}
}
