package summary

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

// reportWork sums up what was done, nil where the scenario tells of none.
func reportWork(w *scenario.Work) *report.Work {
	if w == nil {
		return nil
	}
	out := &report.Work{
		UntilSeconds: report.Round(w.Until.Seconds()), Useful: byKind(w.Hours[:]), GPUs: byKind(w.GPUs[:]), TrainingJCTSeconds: quantiles(w.JCTs),
		Windows: w.Requests.Windows, Broken: w.Requests.Broken, Requests: w.Requests.Requests, Late: w.Requests.Late,
		NotebookWaitSeconds: quantiles(w.NotebookWaits),
	}
	if w.Bursts.Alone > 0 {
		out.BurstSlowdown = new(report.Round(float64(w.Bursts.Took) / float64(w.Bursts.Alone)))
	}
	for i := range w.Ordered {
		p := &w.Ordered[i]
		part := report.Part{Part: p.Name, After: p.After}
		for _, t := range []struct {
			to *(*float64)
			at time.Duration
		}{{&part.ArrivedSeconds, p.Arrived}, {&part.StartedSeconds, p.Started}, {&part.EndedSeconds, p.Ended}} {
			if t.at >= 0 {
				*t.to = new(report.Round(t.at.Seconds()))
			}
		}
		out.Ordered = append(out.Ordered, part)
	}
	return out
}

// byKind returns a figure by the kind of work, and its sum.
func byKind(of []float64) report.Kinds {
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	return report.Kinds{
		All: report.Round(sum), Training: report.Round(of[scenario.Training]), Inference: report.Round(of[scenario.Inference]),
		Notebooks: report.Round(of[scenario.Notebooks]),
	}
}
