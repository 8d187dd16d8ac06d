package summary_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/summary"
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
assertions:
- {metric: finished_pods, min: 2, max: 2}
- {metric: mean_wait_seconds, max: 1}
`

func play(t *testing.T, text string) *scenario.Result {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(text))
	must.OK(t, err)
	r, err := s.Play(nil)
	must.OK(t, err)
	return r
}

func TestOf(t *testing.T) {
	makespan := 15.0
	want := report.Scenario{
		Scenario: "drawn",
		Results: []report.RunResult{{
			Policy: "packed", Seed: 7,
			Jobs: report.Jobs{Arrived: 3, Finished: 2, Running: 1},
			// Half for 10 s, all for 5 s, none for 5 s of 20 s: (5 + 5)/20.
			AllocatedPercent: report.OverTime{Mean: 50, Peak: 100, End: 50},
			// The usual pod wants a whole GPU: the rest beside a and c is lost, 50 for 10 s of 20 s.
			FragmentationPercent: report.OverTime{Mean: 25, Peak: 50, End: 50},
			WaitSeconds:          &report.Quantiles{Mean: 2.6667, P50: 0, P99: 8, Max: 8}, // 0, 8, 0
			JCTSeconds:           &report.Quantiles{Mean: 11.5, P50: 10, P99: 13, Max: 13},
			MakespanSeconds:      &makespan,
		}},
		Checks: []report.CheckResult{
			{Assertion: "finished_pods: at least 2 and at most 2", Policy: "packed", Seed: 7, Value: 2, Passed: true},
			{Assertion: "mean_wait_seconds: at most 1: fails, it is 2.6667", Policy: "packed", Seed: 7, Value: 2.6667},
		},
	}
	got := summary.Of(play(t, drawn))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"packed, seed 7: mean_wait_seconds: at most 1: fails, it is 2.6667"}, got.Failed()); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
}

// TestOfGangs: two nodes of two GPUs in racks of their own. wide starts at 0 s on both for 10 s; late waits for one of
// them from 1 s to 10 s; large waits from 5 s on for both, is passed over by share at 10 s, and starts when that ends at 40 s.
func TestOfGangs(t *testing.T) {
	r := play(t, `
name: gangs
cluster:
  groups:
  - {name: n, count: 2, cpu: 8, memory: 64Gi, gpus: 2, model: T4, device_memory: 16Gi, domains: [{label: rack, nodes: 1}]}
workload:
  jobs:
  - {name: wide, duration: 10s, gang: {members: [{role: w, count: 4, slots: 10}]}}
  - {name: late, arrive: 1s, duration: 1s, gang: {members: [{role: w, count: 2, slots: 10}], required: [rack]}}
  - {name: large, arrive: 5s, duration: 1s, gang: {members: [{role: w, count: 4, slots: 10}]}}
  - {name: share, arrive: 6s, duration: 30s, slots: 5}
  - {name: last, arrive: 30s, duration: 1s, cpu: 1}
policies: [packed]
queue: skip
gangs: {drain: enabled, drain_after: 2s}
`)
	got := summary.Of(r).Results[0]
	want := &report.Gangs{
		Jobs: report.Jobs{Arrived: 3, Finished: 3}, Drained: 1,
		WaitSeconds: &report.Quantiles{Mean: 14.6667, P50: 9, P99: 35, Max: 35},
		Attempts:    2.6667, // 1 of wide, 2 of late, 5 of large: when it comes, and at 10 s, 11 s, 31 s and 40 s
		Spread:      []report.LevelSpread{{Level: "kubernetes.io/hostname", Mean: 1.6667, Max: 2}, {Level: "rack", Mean: 1.6667, Max: 2}},
	}
	if diff := cmp.Diff(want, got.Gangs); diff != "" {
		t.Errorf("gangs (-want +got):\n%s", diff)
	}
	if got.Jobs.Arrived != 12 || got.Jobs.Finished != 12 {
		t.Errorf("jobs are %+v, want all members among them", got.Jobs)
	}
}

// TestNothingFinishes: a figure without a value is left out, not zero.
func TestNothingFinishes(t *testing.T) {
	r := play(t, `
name: endless
cluster: {groups: [{name: n, count: 1, cpu: 8, memory: 64Gi, gpus: 1, model: T4, device_memory: 16Gi}]}
workload: {jobs: [{name: a, slots: 10}, {name: b, slots: 10}]}
policies: [packed]
queue: drop
`)
	got := summary.Of(r).Results[0]
	want := report.RunResult{
		Policy: "packed", Seed: 1, Jobs: report.Jobs{Arrived: 2, Running: 1, Dropped: 1},
		AllocatedPercent: report.OverTime{Mean: 100, Peak: 100, End: 100}, WaitSeconds: &report.Quantiles{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// TestOfElastic: one worker for 60 s, when a change repays its cost, then two that are twice as fast and work from 70 s on, until
// the hundred seconds of work are done: 60 + 2 × 20. The third member never runs, since a service has its GPU.
func TestOfElastic(t *testing.T) {
	r := play(t, `
name: elastic
cluster: {groups: [{name: n, count: 1, cpu: 8, memory: 64Gi, gpus: 3, model: T4, device_memory: 16Gi}]}
workload:
  jobs:
  - {name: service, slots: 10}
  - name: train
    duration: 100s
    gang:
      members: [{role: w, count: 3, slots: 10}]
      elastic: {workers: 1-3, rates: [{workers: 1, rate: 1}, {workers: 2, rate: 2}], resize_time: 10s}
policies: [packed]
queue: skip
elastic: {interval: 30s}
assertions:
- {metric: elastic_workers, job: train, from: 60s, to: 60s, min: 2, max: 2}
`)
	got := summary.Of(r)
	want := []report.ElasticJob{{
		Job: "jobs/train", State: "finished", Min: new(1), Mean: new(1.3333), Max: new(2), // (1 × 60 + 2 × 30) / 90
		Moves: 1, PausedSeconds: 10, JCTSeconds: new(90.0), Workers: []report.Workers{{Workers: 1}, {AtSeconds: 60, Workers: 2}, {AtSeconds: 90}},
	}}
	if diff := cmp.Diff(want, got.Results[0].Elastic); diff != "" {
		t.Errorf("elastic jobs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(report.Jobs{Arrived: 4, Finished: 2, Running: 1, Held: 1}, got.Results[0].Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if failed := got.Failed(); failed != nil {
		t.Errorf("failed: %v", failed)
	}
}
