package gangs

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

// polluxGangs is the first four workloads of Pollux on nodes of a kind, or skips the test.
func polluxGangs(t testing.TB, kind string, nodes, gpus int) *Training {
	t.Helper()
	dir := published.Data(t)
	load := func(pattern string) (all []*measurements.File) {
		files, err := filepath.Glob(filepath.Join(dir, "pollux_sia", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			trace, err := measurements.Load(file)
			must.OK(t, err)
			all = append(all, trace)
		}
		return all
	}
	return &Training{
		Workloads: load("workloads/pollux-workload-[1-4].csv"), Measured: slices.Concat(load("placements/*.csv"), load("scalability/*.csv"), load("validation/*.csv")),
		Kind: kind, Nodes: nodes, GPUs: gpus, Interval: time.Minute, Restart: 30 * time.Second, Seeds: []int64{1},
	}
}

func resultsOf(t testing.TB, g *Training, policies ...string) map[string]results.TrainingResult {
	t.Helper()
	g.Policies = policies
	out, err := g.Run()
	must.OK(t, err)
	all := map[string]results.TrainingResult{}
	for _, r := range out.Results {
		t.Logf("%s: %v h, mean %v", r.Policy, r.Hours, r.MeanHours)
		all[r.Policy] = r
	}
	return all
}

// TestPolluxTiresias: the rules of Tiresias give within 10 % what the simulator of Pollux gave, on each workload. With the
// scheduler's places jobs end no later in the same order, and earlier where they are stopped for those that had less
// service, are smaller, or are expected to take fewer hours.
func TestPolluxTiresias(t *testing.T) {
	g := polluxGangs(t, "aws", 16, 4)
	text, err := os.ReadFile(filepath.Join(os.Getenv("TANDEM_DATA"), "pollux_sia", "results", "results-jobload__tiresias-1.0__summary.json"))
	must.OK(t, err)
	var published struct {
		Averages map[string]float64 `json:"avgs"`
	}
	must.OK(t, json.Unmarshal(text, &published))
	got := resultsOf(t, g, tiresiasGangs, "tandem-tiresias", "tandem-service", "tandem-size", "tandem-priority")
	ours := got[tiresiasGangs]
	for i, h := range ours.Hours {
		want := published.Averages[fmt.Sprintf("workload-%d", i+1)] / 3600
		if math.Abs(h.Mean/want-1) > .1 {
			t.Errorf("workload %d: %v h, published are %v", i+1, h.Mean, want)
		}
	}
	for name, most := range map[string]float64{"tandem-tiresias": 1.01, "tandem-service": .98, "tandem-size": .96, "tandem-priority": .85} {
		if part := got[name].MeanHours.Mean / ours.MeanHours.Mean; part >= most {
			t.Errorf("%s takes %v of the hours of tiresias, want less than %v", name, part, most)
		}
	}
}

// TestPolluxNoHarm: where nodes make next to no difference, a scheduler that is told what each job loses on several nodes is
// within 1 % of one for which nodes make none.
func TestPolluxNoHarm(t *testing.T) {
	got := resultsOf(t, polluxGangs(t, "dgx", 8, 8), "tandem-profiled", "tandem-anywhere")
	if part := got["tandem-profiled"].MeanHours.Mean / got["tandem-anywhere"].MeanHours.Mean; part > 1.01 {
		t.Errorf("close together takes %v of the hours of anywhere, want at most 1.01", part)
	}
}
