package report

import (
	"fmt"
	"io"
	"strconv"
)

// Evictions sums up the evictions of a run.
type Evictions struct {
	// Preemptions with evictions, their Victims, and the victims beyond what budgets allow.
	Preemptions int `json:"preemptions"`
	Victims     int `json:"victims"`
	Violations  int `json:"budget_violations"`
	// LostHours is the GPU time of the work that was undone.
	LostHours float64 `json:"gpu_hours_lost"`
	// Waits of the placed jobs by priority, the highest first.
	Waits []PriorityWait `json:"wait_seconds_by_priority"`
}

// PriorityWait is how long the placed jobs of a priority waited.
type PriorityWait struct {
	Priority int32 `json:"priority"`
	Jobs     int   `json:"jobs"`
	Quantiles
}

// writeEvictions writes a row per run and priority, where the scenario allows evictions.
func (s Scenario) writeEvictions(w io.Writer) error {
	t := Table{Columns: []Column{
		{Head: "policy", Text: true}, {Head: "seed"}, {Head: "preemptions"}, {Head: "victims"}, {Head: "GPU-h lost"}, {Head: "violations"},
		{Head: "priority"}, {Head: "placed"}, {Head: "mean wait"}, {Head: "p99 wait"}, {Head: "max wait"},
	}}
	for i := range s.Results {
		e := s.Results[i].Preemption
		if e == nil {
			continue
		}
		head := []string{
			s.Results[i].Policy, strconv.FormatInt(s.Results[i].Seed, 10), strconv.Itoa(e.Preemptions), strconv.Itoa(e.Victims),
			strconv.FormatFloat(e.LostHours, 'f', 2, 64), strconv.Itoa(e.Violations),
		}
		for _, p := range e.Waits {
			t.Rows = append(t.Rows, append(head, strconv.Itoa(int(p.Priority)), strconv.Itoa(p.Jobs), span(p.Mean), span(p.P99), span(p.Max)))
			head = make([]string, len(head)) // the run stands in its first row
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
