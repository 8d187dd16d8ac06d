package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ElasticJob is what became of an elastic job.
type ElasticJob struct {
	Job   string `json:"job"`
	State string `json:"state"`
	// Min, Mean and Max are the numbers of its workers while it ran, nil where it never did. Mean is over the time.
	Min  *int     `json:"min_workers"`
	Mean *float64 `json:"mean_workers"`
	Max  *int     `json:"max_workers"`
	// Moves counts the changes of its size that were decided while it ran.
	Moves int `json:"moves"`
	// PausedSeconds is the time in which it had workers and did no work after changes.
	PausedSeconds float64 `json:"paused_seconds"`
	// JCTSeconds is from its arrival to its end, nil where it has none.
	JCTSeconds *float64 `json:"jct_seconds"`
	// Workers are the numbers of its workers, each from a time on: 0 while it waits and after its end.
	Workers []Workers `json:"workers"`
}

// Workers is a number of workers from a time on.
type Workers struct {
	AtSeconds float64 `json:"at_seconds"`
	Workers   int     `json:"workers"`
}

const (
	// mostElastic bounds the rows of elastic jobs of one run. The JSON has all jobs.
	mostElastic = 10
	// mostWorkers bounds the numbers of workers in a row.
	mostWorkers = 8
)

// writeElastic writes a row for each elastic job, up to mostElastic of each run.
func (s Scenario) writeElastic(w io.Writer) error {
	t := Table{Columns: []Column{
		{Head: "policy", Text: true}, {Head: "seed"}, {Head: "elastic job", Text: true}, {Head: "state", Text: true}, {Head: "min"}, {Head: "mean"},
		{Head: "max"}, {Head: "moves"}, {Head: "paused"}, {Head: "JCT"}, {Head: "workers over time", Text: true},
	}}
	more := 0
	for i := range s.Results {
		r := &s.Results[i]
		for k := range r.Elastic[:min(len(r.Elastic), mostElastic)] {
			t.Rows = append(t.Rows, append([]string{r.Policy, strconv.FormatInt(r.Seed, 10)}, r.Elastic[k].row()...))
		}
		more += max(0, len(r.Elastic)-mostElastic)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	err := t.Write(w)
	if err == nil && more > 0 {
		_, err = fmt.Fprintf(w, "… and %d more elastic jobs; -o json has all\n", more)
	}
	return err
}

func (j *ElasticJob) row() []string {
	row := []string{j.Job, j.State, none, none, none, strconv.Itoa(j.Moves), span(j.PausedSeconds), none, j.overTime()}
	if j.Mean != nil {
		row[2], row[3], row[4] = strconv.Itoa(*j.Min), strconv.FormatFloat(*j.Mean, 'f', 2, 64), strconv.Itoa(*j.Max)
	}
	if j.JCTSeconds != nil {
		row[7] = span(*j.JCTSeconds)
	}
	return row
}

// overTime writes the numbers of workers with their times: "0s 2, 3m0s 4, 9m10s 0".
func (j *ElasticJob) overTime() string {
	parts := make([]string, 0, mostWorkers+1)
	for i, n := range j.Workers {
		if i == mostWorkers {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%s %d", span(n.AtSeconds), n.Workers))
	}
	return strings.Join(parts, ", ")
}
