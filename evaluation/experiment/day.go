package experiment

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/plots"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// dayStep is the minutes of which a point of the day is the mean: less shows each change of a fleet, and no picture of the day.
const dayStep = 5

// days draws the GPUs in use by kind of work, with what came of each policy: the mean of its seeds. There is no figure where the scenario
// does not tell of work.
func days(r *scenario.Result) []plots.Figure {
	var panels []plots.Panel
	for _, policy := range policiesOf(r) {
		var all []*scenario.Work
		for i := range r.Runs {
			if run := &r.Runs[i]; run.Policy == policy && run.Work != nil {
				all = append(all, run.Work)
			}
		}
		if len(all) > 0 {
			panels = append(panels, plots.Panel{Name: policy, Notes: headlines(all), Layers: layers(all)})
		}
	}
	if len(panels) == 0 {
		return nil
	}
	return []plots.Figure{plots.Day(panels, float64(r.Runs[0].History.Capacity)/float64(vgpu.WholeGPU))}
}

// headlines says what came of the runs of a policy, on average.
func headlines(all []*scenario.Work) []string {
	hours, broken, windows := 0.0, 0, 0
	var trainings, waits []time.Duration
	var took, alone time.Duration
	for _, w := range all {
		hours += w.Useful() / float64(len(all))
		broken, windows = broken+w.Requests.Broken, windows+w.Requests.Windows
		took, alone = took+w.Bursts.Took, alone+w.Bursts.Alone
		trainings, waits = append(trainings, w.JCTs...), append(waits, w.NotebookWaits...)
	}
	notes := []string{fmt.Sprintf("%.0f GPU-hours of useful work", hours)}
	if mean, some := sim.Mean(trainings); some {
		notes = append(notes, fmt.Sprintf("trainings take %.1f h on average", mean.Hours()))
	}
	if windows > 0 {
		notes = append(notes, fmt.Sprintf("promise broken in %d of %d minutes", broken, windows))
	}
	if mean, some := sim.Mean(waits); some {
		notes = append(notes, fmt.Sprintf("notebooks wait %.0f min on average", mean.Minutes()))
	}
	if alone > 0 {
		notes = append(notes, fmt.Sprintf("their bursts take %.1f times as long as alone", float64(took)/float64(alone)))
	}
	return notes
}

// layers returns the mean use of runs, inference below all else.
func layers(all []*scenario.Work) []plots.Series {
	kinds := []scenario.Kind{scenario.Inference, scenario.Notebooks, scenario.Training}
	series := make([]plots.Series, 0, len(kinds))
	for _, kind := range kinds {
		s := plots.Series{Name: kind.String()}
		for minute := 0; minute < len(all[0].Use); minute += dayStep {
			sum, count := 0.0, 0
			for _, w := range all {
				for _, use := range w.Use[min(minute, len(w.Use)):min(minute+dayStep, len(w.Use))] {
					sum, count = sum+use[kind], count+1
				}
			}
			s.Points = append(s.Points, plots.Point{X: float64(minute) / 60, Y: sum / float64(count)})
		}
		series = append(series, s)
	}
	return series
}
