package scenario

import (
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

// metric is something that assertions are about: its values in a window, none where there is nothing to measure.
type metric struct {
	name   string
	values func(*sim.History, span) []float64
}

// metrics by name.
var metrics = []metric{
	{"allocated_percent", sampled((*sim.History).AllocatedPercent)},
	{"broken_windows", ofWork(func(w *Work) []float64 { return []float64{float64(w.Requests.Broken)} })},
	{"budget_violations", ofPreemptions(func(p *sim.Preemption) float64 { return float64(p.Violations) })},
	{"dropped_pods", dropped},
	{elasticMoves, movesOf},
	{elasticWorkers, workersOf},
	{"finished_gangs", func(h *sim.History, w span) []float64 {
		if w.first >= w.end {
			return nil
		}
		count := 0.0
		for i := range h.Gangs {
			if g := &h.Gangs[i]; g.State == sim.Finished && w.has(g.Ended) {
				count++
			}
		}
		return []float64{count}
	}},
	{"finished_pods", func(h *sim.History, w span) []float64 {
		if w.first >= w.end {
			return nil
		}
		return []float64{float64(len(ended(h, w)))}
	}},
	{"fragmentation_percent", sampled((*sim.History).FragmentationPercent)},
	{"gang_attempts", ofGangs(func(g *sim.GangOutcome, _ span) float64 { return float64(g.Attempts) })},
	{gangSpread, ofGangs(func(g *sim.GangOutcome, w span) float64 {
		i := slices.IndexFunc(g.Spread, func(s gang.Spread) bool { return s.Key == w.level })
		return float64(g.Spread[i].Domains)
	})},
	{"gpu_hours_lost", ofPreemptions(func(p *sim.Preemption) float64 { return float64(p.Lost) / 3_600_000 })},
	{"makespan_seconds", func(h *sim.History, w span) []float64 {
		d, ok := h.Makespan()
		return seconds(d, ok && len(ended(h, w)) > 0)
	}},
	{"max_gang_wait_seconds", func(h *sim.History, w span) []float64 { return seconds(sim.Quantile(gangWaits(h, w), 1)) }},
	{"mean_gang_wait_seconds", func(h *sim.History, w span) []float64 { return seconds(sim.Mean(gangWaits(h, w))) }},
	{"mean_jct_seconds", func(h *sim.History, w span) []float64 { return seconds(sim.Mean(ended(h, w))) }},
	{"mean_notebook_wait_seconds", ofWork(func(w *Work) []float64 { return seconds(sim.Mean(w.NotebookWaits)) })},
	{"mean_training_jct_seconds", ofWork(func(w *Work) []float64 { return seconds(sim.Mean(w.JCTs)) })},
	{"mean_wait_seconds", func(h *sim.History, w span) []float64 { return seconds(sim.Mean(started(h, w))) }},
	{"needless_victims", needless},
	{"p99_gang_wait_seconds", func(h *sim.History, w span) []float64 { return seconds(sim.Quantile(gangWaits(h, w), .99)) }},
	{"p99_jct_seconds", func(h *sim.History, w span) []float64 { return seconds(sim.Quantile(ended(h, w), .99)) }},
	{"p99_wait_seconds", func(h *sim.History, w span) []float64 { return seconds(sim.Quantile(started(h, w), .99)) }},
	{"preemptions", ofPreemptions(func(*sim.Preemption) float64 { return 1 })},
	{"running_pods", sampled(func(_ *sim.History, s *sim.Sample) float64 { return float64(s.Running) })},
	{"useful_gpu_hours", ofWork(func(w *Work) []float64 { return []float64{w.Useful()} })},
	{"utilisation_percent", func(h *sim.History, w span) []float64 {
		part, ok := h.Utilisation(w.from, w.to)
		if !ok {
			return nil
		}
		return []float64{100 * part}
	}},
	{"victims", ofPreemptions(func(p *sim.Preemption) float64 { return float64(p.Victims()) })},
	{"waiting_gangs", sampled(func(_ *sim.History, s *sim.Sample) float64 { return float64(s.WaitingGangs) })},
	{"waiting_pods", sampled(func(_ *sim.History, s *sim.Sample) float64 { return float64(s.Waiting) })},
}

// Metrics returns the names of the figures of assertions, sorted. Assertions on the cluster's percentages and present
// pods (allocated, fragmentation, running, waiting) cover each moment of the window with an event. Waits are those of
// pods that started in the window, completion times (jct) those of pods that ended in it. Attempts and spread cover
// each gang that started in the window; waits of gangs also count those that wait at its end. Victims, lost work and
// violations are those of the preemptions in the window; needless victims those of the whole run. Workers of elastic jobs
// are those of every moment of the window at which such a job is there, moves the changes of their sizes in it. Broken windows, useful GPU-hours, and
// waits of notebooks and completion times of trainings by name are those of the whole run.
func Metrics() []string {
	names := make([]string, 0, len(metrics))
	for i := range metrics {
		names = append(names, metrics[i].name)
	}
	return names
}

func metricByName(name string) *metric {
	return &metrics[slices.IndexFunc(metrics, func(m metric) bool { return m.name == name })]
}

// has reports whether a time is in the window.
func (w span) has(at time.Duration) bool { return w.from <= at && at <= w.to }

// ofPods are the metrics that may be about pods of one priority.
var ofPods = []string{"finished_pods", "mean_jct_seconds", "mean_wait_seconds", "p99_jct_seconds", "p99_wait_seconds"}

// counts reports whether a pod is of the priority that the assertion is about.
func (w span) counts(o *sim.Outcome) bool { return w.priority == nil || *w.priority == o.Priority }

// ofPreemptions returns a sum over the preemptions in the window, of those that evict.
func ofPreemptions(of func(*sim.Preemption) float64) func(*sim.History, span) []float64 {
	return func(h *sim.History, w span) []float64 {
		if w.first >= w.end {
			return nil
		}
		sum := 0.0
		for i := range h.Preemptions {
			if p := &h.Preemptions[i]; p.Victims() > 0 && w.has(p.At) {
				sum += of(p)
			}
		}
		return []float64{sum}
	}
}

// needless counts the victims that could have stayed, and the preemptions that made no room; nothing without evictions.
func needless(h *sim.History, _ span) []float64 {
	a, err := h.Audit()
	if err != nil || a.Victims == 0 {
		return nil
	}
	return []float64{float64(a.Needless + a.Void)}
}

// ofWork returns a metric of the work of the whole run, nothing where the scenario tells of none.
func ofWork(of func(*Work) []float64) func(*sim.History, span) []float64 {
	return func(_ *sim.History, w span) []float64 {
		if w.work == nil {
			return nil
		}
		return of(w.work)
	}
}

func sampled(of func(*sim.History, *sim.Sample) float64) func(*sim.History, span) []float64 {
	return func(h *sim.History, w span) []float64 {
		var all []float64
		for i := w.first; i < w.end; i++ {
			all = append(all, of(h, &h.Samples[i]))
		}
		return all
	}
}

// dropped counts the dropped pods by the samples of the window, so that a window by arrivals separates pods of one
// instant.
func dropped(h *sim.History, w span) []float64 {
	if w.first >= w.end {
		return nil
	}
	count := h.Samples[w.end-1].Dropped
	if w.first > 0 {
		count -= h.Samples[w.first-1].Dropped
	}
	return []float64{float64(count)}
}

// gangSpread is the metric of how many domains of a level each gang is on.
const gangSpread = "gang_spread"

// ofGangs returns a metric of each gang that started in the window.
func ofGangs(of func(*sim.GangOutcome, span) float64) func(*sim.History, span) []float64 {
	return func(h *sim.History, w span) []float64 {
		var all []float64
		for i := range h.Gangs {
			if g := &h.Gangs[i]; g.State.Placed() && w.has(g.Started) {
				all = append(all, of(g, w))
			}
		}
		return all
	}
}

// gangWaits returns the waits of the gangs that started in the window, and of those that wait at its end, until then.
// So a gang that never starts counts too.
func gangWaits(h *sim.History, w span) []time.Duration {
	var all []time.Duration
	for i := range h.Gangs {
		g := &h.Gangs[i]
		switch {
		case g.State == sim.Dropped || g.Arrived > w.to:
		case !g.State.Placed() || g.Started > w.to:
			all = append(all, w.to-g.Arrived)
		case w.has(g.Started):
			all = append(all, g.Wait())
		}
	}
	return all
}

// started returns the waits of the pods that started in the window.
func started(h *sim.History, w span) []time.Duration {
	var all []time.Duration
	for i := range h.Outcomes {
		if o := &h.Outcomes[i]; o.State.Placed() && w.has(o.Started) && w.counts(o) {
			all = append(all, o.Wait())
		}
	}
	return all
}

// ended returns the completion times of the pods that ended in the window.
func ended(h *sim.History, w span) []time.Duration {
	var all []time.Duration
	for i := range h.Outcomes {
		if o := &h.Outcomes[i]; o.State == sim.Finished && w.has(o.Ended) && w.counts(o) {
			all = append(all, o.JCT())
		}
	}
	return all
}

func seconds(d time.Duration, ok bool) []float64 {
	if !ok {
		return nil
	}
	return []float64{d.Seconds()}
}
