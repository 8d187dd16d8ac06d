package lifetimes

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Shortest plays jobs in the order of their remaining time, with true times and with predicted ones, on a cluster of so many GPUs that are
// all alike. Jobs take as many as they ask for or none, stop and go on at no cost, and pass others that do not fit.
type Shortest struct {
	Traces []*traces.Trace
	GPUs   int
	// Jobs are played, from the middle of the trace on. Those before have ended, and predictions know them.
	Jobs int
	// Loads are what jobs ask for while they arrive ÷ what the cluster has: arrivals are stretched for that.
	Loads  []float64
	Config lifetime.Config
}

// ShortestRow is the mean time in seconds from arrival to end, in each order.
type ShortestRow struct {
	Trace string  `json:"trace"`
	Load  float64 `json:"load"`
	FIFO  float64 `json:"fifoSeconds"`
	True  float64 `json:"trueSeconds"`
	// Predicted orders by Curve.Rank, Median and Mean by these of the remaining time.
	Predicted float64 `json:"predictedSeconds"`
	Median    float64 `json:"medianSeconds"`
	Mean      float64 `json:"meanSeconds"`
}

// gain says in percent which part of what true times gain over FIFO an order gains: nothing where they gain less than a hundredth.
func (r ShortestRow) gain(mean float64) string {
	if r.FIFO-r.True < r.FIFO/100 {
		return "-"
	}
	return strconv.FormatFloat(100*(r.FIFO-mean)/(r.FIFO-r.True), 'f', 1, 64)
}

// ShortestResults are the rows of all traces and loads.
type ShortestResults []ShortestRow

const maxGPUs = 100_000

// task is a job that is played.
type task struct {
	*job
	arrive, done float64
	curve        lifetime.Curve
	rank         float64
	running      bool
	order        int
}

// ranking returns what orders a task, the lowest first.
type ranking func(*task) float64

// Run plays each trace at each load.
func (s *Shortest) Run() (all ShortestResults, err error) {
	if s.GPUs < 1 || s.GPUs > maxGPUs {
		return nil, fmt.Errorf("%d GPUs, legal is 1 to %d", s.GPUs, maxGPUs)
	}
	for _, l := range s.Loads {
		if !(l > 0 && l <= 10) {
			return nil, fmt.Errorf("load %v, legal is above 0 to 10", l)
		}
	}
	for _, t := range s.Traces {
		jobs := jobsOf(t)
		for _, load := range s.Loads {
			row := ShortestRow{Load: load, Trace: base(t)}
			for _, o := range []struct {
				into *float64
				by   ranking
			}{
				{&row.FIFO, nil},
				{&row.True, func(t *task) float64 { return t.length - t.done }},
				{&row.Predicted, func(t *task) float64 { c := t.curve.At(t.done); return c.Rank() }},
				{&row.Median, func(t *task) float64 { c := t.curve.At(t.done); return c.Quantile(.5) }},
				{&row.Mean, func(t *task) float64 { c := t.curve.At(t.done); return c.Mean(1e7) }},
			} {
				if *o.into, err = s.mean(jobs, load, o.by); err != nil {
					return nil, fmt.Errorf("%v at load %v: %w", t, load, err)
				}
			}
			all = append(all, row)
		}
	}
	return all, nil
}

// mean returns the mean time from arrival to end.
func (s *Shortest) mean(jobs []job, load float64, by ranking) (float64, error) {
	tasks, err := s.tasks(jobs, load)
	if err != nil {
		return 0, err
	}
	l, err := lifetime.NewLearner(s.Config)
	if err != nil {
		return 0, err
	}
	past := history{learner: l, ended: byEnd(jobs[:len(jobs)/2])}
	if err := past.until(math.Inf(1)); err != nil {
		return 0, err
	}
	p := play{learner: l, by: by, waiting: tasks}
	for len(p.waiting) > 0 || len(p.active) > 0 {
		if err := cmp.Or(p.advance(), p.admit()); err != nil {
			return 0, err
		}
		p.choose(s.GPUs * int(vgpu.WholeGPU))
	}
	return p.sum / float64(len(tasks)), nil
}

// play is the state of a cluster: the tasks that have yet to arrive, those that have not ended, and the sum of the times of those that have.
type play struct {
	learner         *lifetime.Learner
	by              ranking
	waiting, active []*task
	now, sum        float64
}

// advance goes on to the next arrival or end.
func (p *play) advance() error {
	until := math.Inf(1)
	if len(p.waiting) > 0 {
		until = p.waiting[0].arrive
	}
	for _, t := range p.active {
		if t.running {
			until = min(until, p.now+t.length-t.done)
		}
	}
	left := p.active[:0]
	for _, t := range p.active {
		if t.running {
			t.done += until - p.now
		}
		// Ends of sums of fractions miss the length by rounding.
		if t.length-t.done > 1e-6 {
			left = append(left, t)
			continue
		}
		p.sum += until - t.arrive
		if err := p.learner.Observe(lifetime.Observation{Pod: t.pod, Length: t.length}); err != nil {
			return err
		}
	}
	p.active, p.now = left, until
	return nil
}

// admit takes in the tasks that have arrived, with what is known of them by now.
func (p *play) admit() (err error) {
	for ; len(p.waiting) > 0 && p.waiting[0].arrive <= p.now; p.waiting = p.waiting[1:] {
		t := p.waiting[0]
		if t.curve, err = p.learner.Predict(t.pod, 0); err != nil {
			return err
		}
		if p.by != nil {
			t.rank = p.by(t)
		}
		p.active = append(p.active, t)
	}
	return nil
}

// choose lets the first tasks of the order run that fit. Without a ranking, those that run go on.
func (p *play) choose(free int) {
	for _, t := range p.active {
		if t.running && p.by != nil {
			t.rank = p.by(t)
		}
	}
	slices.SortFunc(p.active, func(a, b *task) int {
		if p.by == nil && a.running != b.running {
			return map[bool]int{true: -1, false: 1}[a.running]
		}
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.order, b.order))
	})
	for _, t := range p.active {
		if t.running = t.pod.Size <= free; t.running {
			free -= t.pod.Size
		}
	}
}

func (s *Shortest) tasks(jobs []job, load float64) ([]*task, error) {
	var all []*task
	work := 0.0
	for i := len(jobs) / 2; i < len(jobs) && len(all) < s.Jobs; i++ {
		if j := &jobs[i]; j.pod.Size > 0 && j.pod.Size <= s.GPUs*int(vgpu.WholeGPU) {
			all = append(all, &task{job: j, arrive: j.start, order: len(all)})
			work += j.length * float64(j.pod.Size) / float64(vgpu.WholeGPU)
		}
	}
	if len(all) < 2 || all[len(all)-1].arrive <= all[0].arrive {
		return nil, fmt.Errorf("%d jobs with GPUs, at most %d each, from the middle on: want two or more that arrive one after the other", len(all), s.GPUs)
	}
	first, span := all[0].arrive, all[len(all)-1].arrive-all[0].arrive
	stretch := work / (float64(s.GPUs) * load) / span
	for _, t := range all {
		t.arrive = (t.arrive - first) * stretch
	}
	return all, nil
}

// Table writes the results for people.
func (r ShortestResults) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "trace\tload\tFIFO, h\ttrue, h\tpredicted, h\tgain %\tby median: gain %\tby mean: gain %")
	for _, row := range r {
		fmt.Fprintf(t, "%s\t%g\t%.2f\t%.2f\t%.2f\t%s\t%s\t%s\n", row.Trace, row.Load, row.FIFO/3600, row.True/3600, row.Predicted/3600,
			row.gain(row.Predicted), row.gain(row.Median), row.gain(row.Mean))
	}
	return t.Flush()
}
