package experiment

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/plots"
)

// A day of twenty minutes on four GPUs. A training takes two GPUs for a quarter of an hour: half a GPU-hour. A notebook with half a GPU is
// open from the fifth minute to the fifteenth and computes all the time: ten minutes, a sixth of a GPU-hour.
const day = `
name: day
cluster:
  groups:
  - {name: n, count: 1, cpu: 8, memory: 64Gi, gpus: 4, model: T4, device_memory: 16Gi}
workload:
  jobs:
  - {name: a, duration: 15m, slots: 20}
  notebooks:
  - name: b
    arrivals: {batch: {at: 5m, count: 1}}
    shapes: [{slots: 5}]
    duration: {fixed: 10m}
    burst: 10s
    duty: 1
policies: [native, tandem]
queue: fifo
seeds: 1-2
day: 20m
`

func TestDay(t *testing.T) {
	var got plots.Figure
	for _, f := range Figures(play(t, day)) {
		if f.File == "day" {
			got = f
		}
	}
	layer := func(name string, values ...float64) plots.Series {
		s := plots.Series{Name: name}
		for i, v := range values {
			s.Points = append(s.Points, plots.Point{X: float64(5*i) / 60, Y: v})
		}
		return s
	}
	notes := []string{
		"1 GPU-hours of useful work", "trainings take 0.2 h on average", "notebooks wait 0 min on average", "their bursts take 1.0 times as long as alone",
	}
	panel := func(name string, book float64) plots.Panel {
		return plots.Panel{Name: name, Notes: notes, Layers: []plots.Series{
			layer("inference", 0, 0, 0, 0), layer("notebooks", 0, book, book, 0), layer("training", 2, 2, 2, 0),
		}}
	}
	want := plots.Day([]plots.Panel{panel("native", 1), panel("tandem", .5)}, 4)
	want.Of = "day"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the figure of the day (-want +got):\n%s", diff)
	}
}
