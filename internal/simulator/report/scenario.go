package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Scenario is what became of a scenario's workload, a result per policy and seed.
type Scenario struct {
	Scenario string        `json:"scenario"`
	Results  []RunResult   `json:"results"`
	Checks   []CheckResult `json:"assertions"`
}

// RunResult is one run.
type RunResult struct {
	Policy string `json:"policy"`
	Seed   int64  `json:"seed"`
	Jobs   Jobs   `json:"jobs"`
	// AllocatedPercent is the part of all GPUs with an owner.
	AllocatedPercent OverTime `json:"allocated_percent"`
	// FragmentationPercent is the part of all GPUs that is idle and that the usual pods cannot use.
	FragmentationPercent OverTime `json:"fragmentation_percent"`
	// WaitSeconds is from the arrival of the placed jobs to their start; nil when there are none.
	WaitSeconds *Quantiles `json:"wait_seconds"`
	// JCTSeconds is from the arrival of the finished jobs to their end; nil when there are none.
	JCTSeconds *Quantiles `json:"jct_seconds"`
	// Gangs is what became of the gangs, nil when there are none.
	Gangs *Gangs `json:"gangs,omitempty"`
	// Elastic is what became of each elastic job, nil when there are none.
	Elastic []ElasticJob `json:"elastic,omitempty"`
	// Preemption sums up the evictions, nil where the scenario allows none.
	Preemption *Evictions `json:"preemption,omitempty"`
	// Work is what was done, nil where the scenario has no fleets, no notebooks and no policy native.
	Work *Work `json:"work,omitempty"`
	// MakespanSeconds is from the first arrival to the last end; nil when no job finished.
	MakespanSeconds *float64 `json:"makespan_seconds"`
}

// Jobs counts jobs by what became of them: Arrived is the sum of the others.
type Jobs struct {
	Arrived  int `json:"arrived"`
	Finished int `json:"finished"`
	Running  int `json:"running"`
	Waiting  int `json:"waiting"`
	Dropped  int `json:"dropped"`
	// Held counts members of elastic jobs that were held back to the end.
	Held int `json:"held,omitempty"`
}

// Gangs sums up what became of gangs: Arrived is the sum of the four after it.
type Gangs struct {
	Jobs
	// Drained counts the gangs for which the scheduler kept room.
	Drained int `json:"drained"`
	// WaitSeconds is from the arrival of the placed gangs to their start; nil when there are none.
	WaitSeconds *Quantiles `json:"wait_seconds"`
	// Attempts is the mean number of searches for a place, per gang.
	Attempts float64 `json:"mean_attempts"`
	// Spread of the placed gangs over the levels of the cluster, by name.
	Spread []LevelSpread `json:"spread"`
}

// LevelSpread says on how many domains of a level gangs are.
type LevelSpread struct {
	Level string  `json:"level"`
	Mean  float64 `json:"mean"`
	Max   int     `json:"max"`
}

// OverTime sums a figure of the cluster up: its mean over the time from the first to the last event, the highest value,
// and the last one. The mean is the last value where everything happens at once.
type OverTime struct {
	Mean float64 `json:"mean"`
	Peak float64 `json:"peak"`
	End  float64 `json:"end"`
}

// Quantiles sums spans of time up, in seconds.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// CheckResult is an assertion, and what came of it in one run.
type CheckResult struct {
	// Assertion says in words what the scenario claims and what the run gave.
	Assertion string  `json:"assertion"`
	Policy    string  `json:"policy"`
	Seed      int64   `json:"seed"`
	Value     float64 `json:"value"`
	Passed    bool    `json:"passed"`
}

// Failed returns a line for each assertion that does not hold.
func (s Scenario) Failed() []string {
	var all []string
	for i := range s.Checks {
		if c := &s.Checks[i]; !c.Passed {
			all = append(all, c.String())
		}
	}
	return all
}

// String names the run of the assertion, the claim and the result.
func (c *CheckResult) String() string {
	return fmt.Sprintf("%s, seed %d: %s", c.Policy, c.Seed, c.Assertion)
}

// Table writes a row per run, and then what came of the assertions.
func (s Scenario) Table(w io.Writer) error {
	t := Table{Columns: []Column{
		{Head: "policy", Text: true}, {Head: "seed"}, {Head: "jobs"}, {Head: "finished"}, {Head: "running"}, {Head: "waiting"},
		{Head: "dropped"}, {Head: "allocated %"}, {Head: "peak %"}, {Head: "fragmented %"}, {Head: "mean wait"}, {Head: "mean JCT"},
		{Head: "p99 JCT"}, {Head: "makespan"},
	}}
	for i := range s.Results {
		t.Rows = append(t.Rows, s.Results[i].row())
	}
	if _, err := fmt.Fprintf(w, "scenario %s\n\n", s.Scenario); err != nil {
		return err
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if s.oneSeed() {
		if _, err := io.WriteString(w, "\nEach policy was played once: another seed, or a slightly other workload, may move a figure by some percent.\n"); err != nil {
			return err
		}
	}
	if err := s.writeGangs(w); err != nil {
		return err
	}
	if err := s.writeElastic(w); err != nil {
		return err
	}
	for _, write := range []func(io.Writer) error{s.writeEvictions, s.writeWork} {
		if err := write(w); err != nil {
			return err
		}
	}
	return s.writeChecks(w)
}

// oneSeed reports whether several policies were played, each once: small differences between them say little.
func (s Scenario) oneSeed() bool {
	policies := map[string]int{}
	for i := range s.Results {
		policies[s.Results[i].Policy]++
	}
	return len(policies) > 1 && len(policies) == len(s.Results)
}

// writeGangs writes a row per run with gangs, with a column for each level.
func (s Scenario) writeGangs(w io.Writer) error {
	t := Table{Columns: []Column{
		{Head: "policy", Text: true}, {Head: "seed"}, {Head: "gangs"}, {Head: "finished"}, {Head: "running"}, {Head: "waiting"},
		{Head: "dropped"}, {Head: "drained"}, {Head: "attempts"}, {Head: "mean wait"}, {Head: "p99 wait"}, {Head: "max wait"},
	}}
	for i := range s.Results {
		g := s.Results[i].Gangs
		if g == nil {
			continue
		}
		if len(t.Rows) == 0 {
			for _, l := range g.Spread {
				t.Columns = append(t.Columns, Column{Head: "mean " + l.Level[strings.LastIndex(l.Level, "/")+1:] + "s"})
			}
		}
		t.Rows = append(t.Rows, append([]string{s.Results[i].Policy, strconv.FormatInt(s.Results[i].Seed, 10)}, g.row()...))
	}
	if len(t.Rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w)
}

func (g *Gangs) row() []string {
	counts := []int{g.Arrived, g.Finished, g.Running, g.Waiting, g.Dropped, g.Drained}
	row := make([]string, 0, len(counts)+4+len(g.Spread))
	for _, n := range counts {
		row = append(row, strconv.Itoa(n))
	}
	row = append(row, strconv.FormatFloat(g.Attempts, 'f', 1, 64))
	mean, tail, most := none, none, none
	if g.WaitSeconds != nil {
		mean, tail, most = span(g.WaitSeconds.Mean), span(g.WaitSeconds.P99), span(g.WaitSeconds.Max)
	}
	row = append(row, mean, tail, most)
	for _, l := range g.Spread {
		text := none
		if l.Max > 0 {
			text = strconv.FormatFloat(l.Mean, 'f', 2, 64)
		}
		row = append(row, text)
	}
	return row
}

func (s Scenario) writeChecks(w io.Writer) error {
	if len(s.Checks) == 0 {
		return nil
	}
	failed := s.Failed()
	_, err := fmt.Fprintf(w, "\n%d of %d assertions hold\n", len(s.Checks)-len(failed), len(s.Checks))
	for i := range s.Checks {
		if err != nil {
			return err
		}
		mark := "ok    "
		if !s.Checks[i].Passed {
			mark = "FAILED"
		}
		_, err = fmt.Fprintf(w, "  %s  %s\n", mark, s.Checks[i].String())
	}
	return err
}

func (r *RunResult) row() []string {
	row := []string{r.Policy, strconv.FormatInt(r.Seed, 10)}
	for _, n := range []int{r.Jobs.Arrived, r.Jobs.Finished, r.Jobs.Running, r.Jobs.Waiting, r.Jobs.Dropped} {
		row = append(row, strconv.Itoa(n))
	}
	for _, f := range []float64{r.AllocatedPercent.Mean, r.AllocatedPercent.Peak, r.FragmentationPercent.Mean} {
		row = append(row, strconv.FormatFloat(f, 'f', 1, 64))
	}
	wait, mean, tail := none, none, none
	if r.WaitSeconds != nil {
		wait = span(r.WaitSeconds.Mean)
	}
	if r.JCTSeconds != nil {
		mean, tail = span(r.JCTSeconds.Mean), span(r.JCTSeconds.P99)
	}
	makespan := none
	if r.MakespanSeconds != nil {
		makespan = span(*r.MakespanSeconds)
	}
	return append(row, wait, mean, tail, makespan)
}

// none stands where there is no figure.
const none = "–"

// span writes seconds for people: "850ms", "42s", "12m30s", "3h5m0s".
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
