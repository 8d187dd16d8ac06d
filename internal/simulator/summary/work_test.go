package summary_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/summary"
)

// A GPU. A notebook with half of it is open from the start for ten minutes and computes all the time; then a training takes the whole GPU for
// ten minutes, and natively it could not begin before either. The day ends after a quarter of an hour: half of the training is done.
const worked = `
name: worked
cluster:
  groups:
  - {name: n, count: 1, cpu: 8, memory: 64Gi, gpus: 1, model: T4, device_memory: 16Gi}
workload:
  jobs:
  - {name: train, after: book, duration: 10m, slots: 10}
  - {name: last, after: train, arrive: 1m, duration: 10m, slots: 10}
  notebooks:
  - name: book
    arrivals: {batch: {count: 1}}
    shapes: [{slots: 5}]
    duration: {fixed: 10m}
    burst: 10s
    duty: 1
policies: [native]
queue: drop
day: 15m
`

func TestWork(t *testing.T) {
	got := summary.Of(play(t, worked)).Results[0].Work
	ten := report.Quantiles{Mean: 600, P50: 600, P99: 600, Max: 600}
	want := &report.Work{
		UntilSeconds: 900, Useful: report.Kinds{All: .25, Training: .0833, Notebooks: .1667}, GPUs: report.Kinds{All: 1, Training: .3333, Notebooks: .6667},
		TrainingJCTSeconds: &ten, NotebookWaitSeconds: &report.Quantiles{}, BurstSlowdown: new(1.0),
		Ordered: []report.Part{
			{Part: "book", ArrivedSeconds: new(0.0), StartedSeconds: new(0.0), EndedSeconds: new(600.0)},
			{Part: "train", After: "book", ArrivedSeconds: new(600.0), StartedSeconds: new(600.0), EndedSeconds: new(1200.0)},
			{Part: "last", After: "train", ArrivedSeconds: new(1260.0), StartedSeconds: new(1260.0), EndedSeconds: new(1860.0)},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("work (-want +got):\n%s", diff)
	}
}

// TestNoWork: a scenario without fleets, notebooks and the policy native tells of no work.
func TestNoWork(t *testing.T) {
	if w := summary.Of(play(t, drawn)).Results[0].Work; w != nil {
		t.Errorf("work %+v of a scenario that has none", w)
	}
}
