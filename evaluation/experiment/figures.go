package experiment

import (
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/plots"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/summary"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

// Steps of the lines in plots.
const (
	timeSteps    = 400
	arrivalSteps = 200
)

// Figures draws the runs of a scenario: a line per policy, the mean of its seeds, or all of their jobs together. If
// jobs end, the horizontal axis is time: the sum of all requests would be many times the GPUs that there are.
func Figures(r *scenario.Result) []plots.Figure {
	d := drawing{r: r}
	d.asked, d.end = extent(r)
	all := []plots.Figure{plots.Utilisation(d.overTime((*sim.History).Utilisation))}
	if d.ends() {
		all = append(all, plots.FragmentationOverTime(d.overTime((*sim.History).Fragmented)))
	} else {
		all = append(all, plots.Allocation(d.overArrivals((*sim.History).AllocatedAt)),
			plots.Fragmentation(d.overArrivals((*sim.History).FragmentationAt)))
	}
	all = append(all, plots.Wait(d.each(waited)), plots.GangWait(d.each(gangsWaited)), plots.Completion(d.each(completions)),
		plots.Lost(d.lost()))
	all = append(all, days(r)...)
	for i := range all {
		all[i].Of = r.Name
	}
	return all
}

// drawing is what the figures of a scenario have in common.
type drawing struct {
	r     *scenario.Result
	asked float64
	end   time.Duration
}

// ends reports whether any job ended.
func (d *drawing) ends() bool {
	return slices.ContainsFunc(d.r.Runs, func(run scenario.Run) bool { return run.History.Count(sim.Finished) > 0 })
}

// each makes a line of the runs of each policy.
func (d *drawing) each(points func(runs []*sim.History) []plots.Point) []plots.Series {
	policies := policiesOf(d.r)
	all := make([]plots.Series, 0, len(policies))
	for _, policy := range policies {
		all = append(all, plots.Series{Name: policy, Points: points(historiesOf(d.r, policy))})
	}
	return all
}

// means makes a line of the mean of the runs of each policy, of a curve with points so far apart.
func (d *drawing) means(width float64, of func(*sim.History) curve) []plots.Series {
	return d.each(func(runs []*sim.History) []plots.Point {
		curves := make([]curve, 0, len(runs))
		for _, h := range runs {
			curves = append(curves, of(h))
		}
		return mean(curves, width)
	})
}

// overArrivals samples a figure while requests arrive, a value for each so many percent of the capacity.
func (d *drawing) overArrivals(at func(h *sim.History, percent float64) (float64, bool)) []plots.Series {
	width := d.asked / arrivalSteps
	return d.means(width, func(h *sim.History) curve {
		return sample(arrivalSteps+1, func(step int) (float64, bool) { return at(h, float64(step)*width) })
	})
}

// overTime samples a part of the capacity, in percent, as the mean of each step of time.
func (d *drawing) overTime(part func(h *sim.History, from, to time.Duration) (float64, bool)) []plots.Series {
	width := max(d.end/timeSteps, 1)
	return d.means(width.Seconds(), func(h *sim.History) curve {
		return sample(timeSteps, func(step int) (float64, bool) {
			from := time.Duration(step) * width
			v, ok := part(h, from, from+width)
			return 100 * v, ok
		})
	})
}

// lost adds up what evictions have undone, in GPU-hours.
func (d *drawing) lost() []plots.Series {
	if !d.r.Runs[0].History.Preempts() {
		return nil
	}
	width := max(d.end/timeSteps, 1)
	return d.means(width.Seconds(), func(h *sim.History) curve {
		return sample(timeSteps, func(step int) (float64, bool) {
			sum := 0.
			for i := range h.Preemptions {
				if p := &h.Preemptions[i]; p.At < time.Duration(step+1)*width {
					sum += float64(p.Lost) / 3_600_000
				}
			}
			return sum, true
		})
	})
}

// waited is the distribution of the waits of the jobs of several runs.
func waited(runs []*sim.History) []plots.Point {
	return distribution(runs, func(h *sim.History) ([]time.Duration, int) { return summary.Waits(h), len(h.Outcomes) })
}

// gangsWaited is that of the gangs.
func gangsWaited(runs []*sim.History) []plots.Point {
	return distribution(runs, func(h *sim.History) (all []time.Duration, of int) {
		for i := range h.Gangs {
			if g := &h.Gangs[i]; g.State.Placed() {
				all = append(all, g.Wait())
			}
		}
		return all, len(h.Gangs)
	})
}

// completions is the distribution of the completion times of the jobs of several runs.
func completions(runs []*sim.History) []plots.Point {
	return distribution(runs, func(h *sim.History) ([]time.Duration, int) { return h.JCTs(), len(h.Outcomes) })
}

// distribution is that of the times of several runs together, of so many jobs.
func distribution(runs []*sim.History, of func(*sim.History) ([]time.Duration, int)) []plots.Point {
	var seconds []float64
	total := 0
	for _, h := range runs {
		times, jobs := of(h)
		total += jobs
		for _, d := range times {
			seconds = append(seconds, d.Seconds())
		}
	}
	slices.Sort(seconds)
	return plots.Cumulative(seconds, total)
}

// extent returns the most that arrives in any run, in percent of the capacity, and the end of the longest.
func extent(r *scenario.Result) (percent float64, end time.Duration) {
	for i := range r.Runs {
		h := r.Runs[i].History
		if n := len(h.Samples); n > 0 {
			percent = max(percent, h.ArrivedPercent(&h.Samples[n-1]))
			end = max(end, h.Samples[n-1].At)
		}
	}
	return percent, end
}

// policiesOf returns the policies of the runs, in their order.
func policiesOf(r *scenario.Result) []string {
	var all []string
	for i := range r.Runs {
		if !slices.Contains(all, r.Runs[i].Policy) {
			all = append(all, r.Runs[i].Policy)
		}
	}
	return all
}

func historiesOf(r *scenario.Result, policy string) []*sim.History {
	var all []*sim.History
	for i := range r.Runs {
		if r.Runs[i].Policy == policy {
			all = append(all, r.Runs[i].History)
		}
	}
	return all
}
