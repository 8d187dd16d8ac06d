package report

import (
	"fmt"
	"io"
	"strconv"
)

// Work is what was done in a run with fleets or notebooks.
type Work struct {
	// UntilSeconds is the time up to which hours and GPUs are told.
	UntilSeconds float64 `json:"until_seconds"`
	// Useful are the GPU-hours of useful work: the time that the work takes alone on a GPU.
	Useful Kinds `json:"useful_gpu_hours"`
	// GPUs are those that pods held, on average.
	GPUs Kinds `json:"gpus"`
	// TrainingJCTSeconds are the completion times of trainings, one for a gang; nil when none finished.
	TrainingJCTSeconds *Quantiles `json:"training_jct_seconds"`
	// Windows are the minutes of fleets with enough requests, Broken those in which the promise was broken.
	Windows int `json:"windows"`
	Broken  int `json:"broken_windows"`
	// Requests arrived, and Late ones took longer than promised.
	Requests int `json:"requests"`
	Late     int `json:"late_requests"`
	// NotebookWaitSeconds are from the arrivals of notebooks to their starts, nil when there are none.
	NotebookWaitSeconds *Quantiles `json:"notebook_wait_seconds"`
	// BurstSlowdown is the time that the bursts of notebooks took ÷ the time that they take alone, nil when there are none.
	BurstSlowdown *float64 `json:"burst_slowdown"`
	// Ordered are the parts that come after others, or that others come after.
	Ordered []Part `json:"ordered,omitempty"`
}

// Kinds is a figure by the kind of work.
type Kinds struct {
	All       float64 `json:"all"`
	Training  float64 `json:"training"`
	Inference float64 `json:"inference"`
	Notebooks float64 `json:"notebooks"`
}

// Part is a job, a fleet or a notebook.
type Part struct {
	Part  string `json:"part"`
	After string `json:"after,omitempty"`
	// The times are nil where it did not arrive, start or end.
	ArrivedSeconds *float64 `json:"arrived_seconds"`
	StartedSeconds *float64 `json:"started_seconds"`
	EndedSeconds   *float64 `json:"ended_seconds"`
}

// writeWork writes a row per run with fleets or notebooks.
func (s Scenario) writeWork(w io.Writer) error {
	t := Table{Columns: []Column{
		{Head: "policy", Text: true}, {Head: "seed"}, {Head: "useful GPU-h"}, {Head: "training"}, {Head: "inference"}, {Head: "notebooks"},
		{Head: "GPUs in use"}, {Head: "training JCT"}, {Head: "windows"}, {Head: "broken"}, {Head: "notebook wait"}, {Head: "burst slowdown"},
	}}
	for i := range s.Results {
		if r := &s.Results[i]; r.Work != nil {
			t.Rows = append(t.Rows, append([]string{r.Policy, strconv.FormatInt(r.Seed, 10)}, r.Work.row()...))
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := t.Write(w); err != nil {
		return err
	}
	return s.writeParts(w)
}

func (x *Work) row() []string {
	figure := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	row := []string{figure(x.Useful.All), figure(x.Useful.Training), figure(x.Useful.Inference), figure(x.Useful.Notebooks), figure(x.GPUs.All)}
	jct, wait, slowdown := none, none, none
	if x.TrainingJCTSeconds != nil {
		jct = span(x.TrainingJCTSeconds.Mean)
	}
	if x.NotebookWaitSeconds != nil {
		wait = span(x.NotebookWaitSeconds.Mean)
	}
	if x.BurstSlowdown != nil {
		slowdown = strconv.FormatFloat(*x.BurstSlowdown, 'f', 2, 64)
	}
	return append(row, jct, strconv.Itoa(x.Windows), strconv.Itoa(x.Broken), wait, slowdown)
}

// writeParts writes a row for each part of a workload with an order.
func (s Scenario) writeParts(w io.Writer) error {
	t := Table{Columns: []Column{
		{Head: "policy", Text: true}, {Head: "seed"}, {Head: "part", Text: true}, {Head: "after", Text: true}, {Head: "arrives"}, {Head: "starts"}, {Head: "ends"},
	}}
	at := func(seconds *float64) string {
		if seconds == nil {
			return none
		}
		return span(*seconds)
	}
	for i := range s.Results {
		r := &s.Results[i]
		if r.Work == nil {
			continue
		}
		for _, p := range r.Work.Ordered {
			row := []string{r.Policy, strconv.FormatInt(r.Seed, 10), p.Part, p.After, at(p.ArrivedSeconds), at(p.StartedSeconds), at(p.EndedSeconds)}
			t.Rows = append(t.Rows, row)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w)
}
