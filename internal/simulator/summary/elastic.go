package summary

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

// reportElastic lists the elastic gangs in the order of their first members.
func reportElastic(h *sim.History) []report.ElasticJob {
	var all []report.ElasticJob
	_, end := h.Span()
	for i := range h.Gangs {
		if g := &h.Gangs[i]; len(g.Sizes) > 0 {
			all = append(all, reportSizes(g, end))
		}
	}
	return all
}

// reportSizes sums up the sizes of an elastic gang, until its end or that of the run.
func reportSizes(g *sim.GangOutcome, end time.Duration) report.ElasticJob {
	out := report.ElasticJob{Job: g.Name, State: g.State.String(), Moves: len(g.Moves)}
	area, ran, paused := 0.0, time.Duration(0), time.Duration(0)
	for i, s := range g.Sizes {
		until := max(end, s.At)
		if i+1 < len(g.Sizes) {
			until = g.Sizes[i+1].At
		}
		out.Workers = append(out.Workers, report.Workers{AtSeconds: report.Round(s.At.Seconds()), Workers: s.Workers})
		if s.Workers == 0 {
			continue
		}
		if out.Min == nil || s.Workers < *out.Min {
			out.Min = new(s.Workers)
		}
		if out.Max == nil || s.Workers > *out.Max {
			out.Max = new(s.Workers)
		}
		area, ran = area+float64(s.Workers)*(until-s.At).Seconds(), ran+until-s.At
		paused += max(0, min(until, s.Works)-s.At)
	}
	if ran > 0 {
		out.Mean = new(report.Round(area / ran.Seconds()))
	} else if out.Max != nil {
		out.Mean = new(float64(*out.Max)) // all that happens is at its start
	}
	out.PausedSeconds = report.Round(paused.Seconds())
	if g.State == sim.Finished {
		out.JCTSeconds = new(report.Round((g.Ended - g.Arrived).Seconds()))
	}
	return out
}
