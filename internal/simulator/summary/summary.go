package summary

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

// Of sums the runs of a scenario up.
func Of(r *scenario.Result) report.Scenario {
	out := report.Scenario{Scenario: r.Name, Results: []report.RunResult{}, Checks: []report.CheckResult{}}
	for i := range r.Runs {
		out.Results = append(out.Results, reportRun(&r.Runs[i]))
	}
	for _, v := range r.Assertions {
		out.Checks = append(out.Checks, report.CheckResult{
			Assertion: v.Text, Policy: v.Policy, Seed: v.Seed, Value: report.Round(v.Value), Passed: v.Passed,
		})
	}
	return out
}

func reportRun(r *scenario.Run) report.RunResult {
	h := r.History
	out := report.RunResult{
		Policy: r.Policy, Seed: r.Seed,
		Jobs: report.Jobs{
			Arrived: len(h.Outcomes), Finished: h.Count(sim.Finished), Running: h.Count(sim.Running),
			Waiting: h.Count(sim.Waiting), Dropped: h.Count(sim.Dropped),
			Held: h.Count(sim.Held),
		},
		AllocatedPercent:     overTime(h, h.AllocatedPercent),
		FragmentationPercent: overTime(h, h.FragmentationPercent),
		WaitSeconds:          quantiles(Waits(h)),
		JCTSeconds:           quantiles(h.JCTs()),
		Work:                 reportWork(r.Work),
	}
	if len(h.Gangs) > 0 {
		out.Gangs, out.Elastic = reportGangs(h), reportElastic(h)
	}
	if h.Preempts() {
		out.Preemption = reportEvictions(h)
	}
	if d, ok := h.Makespan(); ok {
		seconds := report.Round(d.Seconds())
		out.MakespanSeconds = &seconds
	}
	return out
}

// reportGangs sums up what became of the gangs.
func reportGangs(h *sim.History) *report.Gangs {
	out := &report.Gangs{Spread: []report.LevelSpread{}}
	out.Arrived = len(h.Gangs)
	var waits []time.Duration
	attempts := 0
	counts := map[sim.State]*int{
		sim.Finished: &out.Finished, sim.Running: &out.Running, sim.Waiting: &out.Waiting, sim.Dropped: &out.Dropped,
	}
	for i := range h.Gangs {
		g := &h.Gangs[i]
		*counts[g.State]++
		attempts += g.Attempts
		if g.Drains > 0 {
			out.Drained++
		}
		if g.State.Placed() {
			waits = append(waits, g.Wait())
		}
	}
	out.WaitSeconds, out.Attempts = quantiles(waits), report.Round(float64(attempts)/float64(len(h.Gangs)))
	for l, level := range h.Levels() {
		out.Spread = append(out.Spread, spreadOver(h, l, level))
	}
	return out
}

// reportEvictions sums up the evictions, and how long the placed jobs of each priority waited.
func reportEvictions(h *sim.History) *report.Evictions {
	out := &report.Evictions{Waits: []report.PriorityWait{}}
	lost := int64(0)
	for i := range h.Preemptions {
		p := &h.Preemptions[i]
		lost += p.Lost
		out.Victims, out.Violations = out.Victims+p.Victims(), out.Violations+p.Violations
		if p.Victims() > 0 {
			out.Preemptions++
		}
	}
	out.LostHours = report.Round(float64(lost) / 3_600_000)
	waits := map[int32][]time.Duration{}
	for i := range h.Outcomes {
		if o := &h.Outcomes[i]; o.State.Placed() {
			waits[o.Priority] = append(waits[o.Priority], o.Wait())
		}
	}
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(waits))) {
		out.Waits = append(out.Waits, report.PriorityWait{Priority: p, Jobs: len(waits[p]), Quantiles: *quantiles(waits[p])})
	}
	return out
}

// spreadOver sums up on how many domains of a level the placed gangs are.
func spreadOver(h *sim.History, l int, level string) report.LevelSpread {
	sum, placed, out := 0, 0, report.LevelSpread{Level: level}
	for i := range h.Gangs {
		if g := &h.Gangs[i]; g.State.Placed() {
			sum, placed, out.Max = sum+g.Spread[l].Domains, placed+1, max(out.Max, g.Spread[l].Domains)
		}
	}
	out.Mean = report.Round(float64(sum) / float64(max(1, placed)))
	return out
}

// Waits returns how long the placed jobs waited.
func Waits(h *sim.History) []time.Duration {
	var all []time.Duration
	for i := range h.Outcomes {
		if o := &h.Outcomes[i]; o.State.Placed() {
			all = append(all, o.Wait())
		}
	}
	return all
}

// quantiles sums spans up, nil for none.
func quantiles(all []time.Duration) *report.Quantiles {
	if len(all) == 0 {
		return nil
	}
	seconds := func(d time.Duration, _ bool) float64 { return report.Round(d.Seconds()) }
	return &report.Quantiles{
		Mean: seconds(sim.Mean(all)), P50: seconds(sim.Quantile(all, .5)), P99: seconds(sim.Quantile(all, .99)),
		Max: seconds(slices.Max(all), true),
	}
}

// overTime sums a percentage up over the samples: each holds until the next.
func overTime(h *sim.History, of func(*sim.Sample) float64) report.OverTime {
	if len(h.Samples) == 0 {
		return report.OverTime{}
	}
	peak, area := 0.0, 0.0
	for i := range h.Samples {
		v := of(&h.Samples[i])
		peak = max(peak, v)
		if i+1 < len(h.Samples) {
			area += v * (h.Samples[i+1].At - h.Samples[i].At).Seconds()
		}
	}
	end := of(&h.Samples[len(h.Samples)-1])
	from, to := h.Span()
	middle := end
	if to > from {
		middle = area / (to - from).Seconds()
	}
	return report.OverTime{Mean: report.Round(middle), Peak: report.Round(peak), End: report.Round(end)}
}
