package scenario

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
)

// Assertion is an expectation of every run of a policy, or of all.
type Assertion struct {
	Metric string
	// Level that a metric of spread is about, "" for the others.
	Level string
	// Priority of the pods that a metric of pods is about, nil for all.
	Priority *int32
	// Job that a metric of elastic jobs is about, "" for all.
	Job string
	// Policy, "" for every one.
	Policy string
	// From and To bound the window, both included.
	From, To Bound
	// Min and Max bound the value, −Inf and +Inf where the scenario gives none. A metric of samples keeps them throughout
	// the window.
	Min, Max float64
}

// Bound is one end of a window.
type Bound struct {
	// Given says that the scenario has it; else the window begins with the run, or ends with it.
	Given bool
	// Time counts where Arrived is 0. Arrived is requests that have arrived, in percent of the cluster's compute.
	Time    time.Duration
	Arrived float64
}

// String writes the bound as it stands in a scenario.
func (b Bound) String() string {
	if b.Arrived > 0 {
		return number(b.Arrived) + "%"
	}
	return b.Time.String()
}

// String says the assertion in a line: "allocated_percent of tandem from 80% to 130%: at least 90".
func (a *Assertion) String() string {
	s := a.Metric
	if a.Level != "" {
		s += " over " + a.Level
	}
	if a.Priority != nil {
		s += fmt.Sprintf(" of priority %d", *a.Priority)
	}
	if a.Job != "" {
		s += " of job " + a.Job
	}
	if a.Policy != "" {
		s += " of " + a.Policy
	}
	if a.From.Given {
		s += " from " + a.From.String()
	}
	if a.To.Given {
		s += " to " + a.To.String()
	}
	var bounds []string
	if !math.IsInf(a.Min, -1) {
		bounds = append(bounds, "at least "+number(a.Min))
	}
	if !math.IsInf(a.Max, 1) {
		bounds = append(bounds, "at most "+number(a.Max))
	}
	return s + ": " + strings.Join(bounds, " and ")
}

// assertions reads the expectations. Policies and levels are those of the scenario, jobs its elastic jobs.
func (r *reader) assertions(files []assertionFile, policies, levels, jobs []string) []Assertion {
	all := make([]Assertion, 0, len(files))
	for i := range files {
		path, f := at("assertions", i), &files[i]
		a := Assertion{Metric: string(f.Metric), Policy: string(f.Policy), Min: math.Inf(-1), Max: math.Inf(1)}
		if !contains(Metrics(), a.Metric) {
			r.wrong(path+".metric", quote(f.Metric), "one of "+strings.Join(Metrics(), ", "))
		}
		if a.Policy != "" && !contains(policies, a.Policy) {
			r.wrong(path+".policy", quote(f.Policy), "one of the scenario's policies: "+strings.Join(policies, ", "))
		}
		a.Level = r.levelOf(path, f, levels)
		a.Priority, a.Job = r.priorityOf(path, f), r.jobOf(path, f, jobs)
		r.window(path, f, &a)
		if f.Min != "" {
			a.Min = r.decimal(path+".min", f.Min, -1e12, 1e12)
		}
		if f.Max != "" {
			a.Max = r.decimal(path+".max", f.Max, -1e12, 1e12)
		}
		switch {
		case f.Min == "" && f.Max == "":
			r.wrong(path, "neither min nor max", "one of them, or both")
		case a.Min > a.Max:
			r.wrong(path+".max", quote(f.Max), "at least min, "+number(a.Min))
		}
		all = append(all, a)
	}
	return all
}

// levelOf reads the level of an assertion about spread.
func (r *reader) levelOf(path string, f *assertionFile, levels []string) string {
	switch {
	case f.Metric == gangSpread && !contains(levels, string(f.Level)):
		r.wrong(path+".level", quote(f.Level), "a label of the nodes: "+strings.Join(levels, ", "))
	case f.Metric != gangSpread && f.Level != "":
		r.wrong(path+".level", quote(f.Level), "nothing, since only "+gangSpread+" is about a level")
	}
	return string(f.Level)
}

// priorityOf reads the priority of the pods that an assertion is about.
func (r *reader) priorityOf(path string, f *assertionFile) *int32 {
	if f.Priority == "" {
		return nil
	}
	if !contains(ofPods, string(f.Metric)) {
		r.wrong(path+".priority", quote(f.Priority), "nothing, since only "+strings.Join(ofPods, ", ")+" are about pods of a priority")
	}
	p := int32(r.whole(path+".priority", f.Priority, math.MinInt32, math.MaxInt32))
	return &p
}

// window reads from and to.
func (r *reader) window(path string, f *assertionFile, a *Assertion) {
	a.From, a.To = r.bound(path+".from", f.From), r.bound(path+".to", f.To)
	if !a.From.Given || !a.To.Given {
		return
	}
	if (a.From.Arrived > 0) != (a.To.Arrived > 0) {
		r.wrong(path+".to", quote(f.To), "the unit of from: both are times, or both percent of the compute that has arrived")
	}
	if a.To.Time < a.From.Time || a.To.Arrived < a.From.Arrived {
		r.wrong(path+".to", quote(f.To), "at least from, "+a.From.String())
	}
}

func (r *reader) bound(path string, s scalar) Bound {
	if s == "" {
		return Bound{}
	}
	if percent, ok := strings.CutSuffix(string(s), "%"); ok {
		p, err := strconv.ParseFloat(percent, 64)
		if err != nil || !decimalForm.MatchString(percent) || p <= 0 || p > 10_000 {
			r.wrong(path, quote(s), "a time such as 1h30m, or percent of the compute that has arrived, above 0% up to 10000%")
		}
		return Bound{Given: true, Arrived: p}
	}
	d, err := time.ParseDuration(string(s))
	if err != nil || d < 0 || d > maxTime {
		r.wrong(path, quote(s), fmt.Sprintf("a time such as 1h30m from 0s to %v, or percent of the compute that has arrived such as 80%%", maxTime))
	}
	return Bound{Given: true, Time: d}
}

// Verdict is whether an assertion holds for a run.
type Verdict struct {
	Assertion Assertion
	Policy    string
	Seed      int64
	// Value is what is nearest to the bounds, or farthest outside; meaningless for an empty window.
	Value  float64
	Passed bool
	// Text says the assertion, and why it fails.
	Text string
}

// judge measures an assertion on a run.
func judge(a *Assertion, r *Run) Verdict {
	v := Verdict{Assertion: *a, Policy: r.Policy, Seed: r.Seed, Text: a.String()}
	values, empty := measure(a, r)
	if empty == "" && len(values) == 0 {
		empty = "nothing happens in the window"
	}
	if empty != "" {
		v.Text += ": fails, since " + empty
		return v
	}
	low, high := slices.Min(values), slices.Max(values)
	v.Value, v.Passed = low, low >= a.Min && high <= a.Max
	if high-a.Max > a.Min-low { // the bound that is nearer, or broken by more
		v.Value = high
	}
	if !v.Passed {
		v.Text += ": fails, it is " + number(math.Round(v.Value*10000)/10000)
	}
	return v
}

// measure returns the values of the metric in the window, or why the window is empty.
func measure(a *Assertion, r *Run) (values []float64, empty string) {
	w, empty := windowOf(a, r.History)
	if empty != "" {
		return nil, empty
	}
	w.work = r.Work
	return metricByName(a.Metric).values(r.History, w), ""
}

// span is a window on a history: times, and the samples in it, from first up to and without end.
type span struct {
	from, to   time.Duration
	first, end int
	// level, job and priority of the assertion.
	level    string
	job      string
	priority *int32
	// work of the run, nil for none.
	work *Work
}

func windowOf(a *Assertion, h *sim.History) (span, string) {
	w := span{end: len(h.Samples), level: a.Level, job: a.Job, priority: a.Priority}
	_, w.to = h.Span()
	for _, b := range []Bound{a.From, a.To} {
		if b.Arrived > 0 {
			if _, reached := h.IndexAt(b.Arrived); !reached {
				return w, fmt.Sprintf("less than %s of the cluster's compute arrive", b)
			}
		}
	}
	switch {
	case a.From.Arrived > 0:
		w.first, _ = h.IndexAt(a.From.Arrived)
		w.from = h.Samples[w.first].At
	case a.From.Given:
		w.from = a.From.Time
		w.first = firstSample(h, func(s *sim.Sample) bool { return s.At >= w.from })
	}
	switch {
	case a.To.Arrived > 0:
		last, _ := h.IndexAt(a.To.Arrived)
		w.end, w.to = last+1, h.Samples[last].At
	case a.To.Given:
		w.to = a.To.Time
		w.end = firstSample(h, func(s *sim.Sample) bool { return s.At > w.to })
	}
	return w, ""
}

// firstSample returns the place of the first sample of which something holds, that of none after the last.
func firstSample(h *sim.History, holds func(*sim.Sample) bool) int {
	for i := range h.Samples {
		if holds(&h.Samples[i]) {
			return i
		}
	}
	return len(h.Samples)
}
