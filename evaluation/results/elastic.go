package results

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Elastic is what policies made of the same jobs with numbers of workers that change, a result per policy.
type Elastic struct {
	// Kind of node, Nodes with so many GPUs each.
	Kind  string `json:"kind"`
	Nodes int    `json:"nodes"`
	GPUs  int    `json:"gpus"`
	// Columns are the workloads, or the loads.
	Columns []string `json:"columns"`
	// LeftOut counts the jobs of applications without a measurement on the nodes.
	LeftOut int `json:"left_out"`
	// Seeds of the random choices, a run of each column each.
	Seeds   []int64         `json:"seeds"`
	Results []ElasticResult `json:"results"`
}

// ElasticResult is what one policy made of the jobs. Its figures other than Hours are means over the columns, with the
// deviation over the seeds.
type ElasticResult struct {
	Policy string `json:"policy"`
	// Hours from arrival to end, the mean over the jobs of each column.
	Hours []Spread `json:"hours"`
	// MeanHours is the mean over the columns, P99Hours the same of the 99th percentiles.
	MeanHours Spread `json:"mean_hours"`
	P99Hours  Spread `json:"p99_hours"`
	// Wait is the hours from arrival to start.
	Wait Spread `json:"wait_hours"`
	// WaitChange and RunChange compare the mean hours from arrival to start, and from start to end, with those of static
	// sizes: −0.22 is 22 percent less.
	WaitChange Spread `json:"wait_change"`
	RunChange  Spread `json:"run_change"`
	// P99Unfairness and WorstUnfairness are of the hours from arrival to end ÷ those that a job would take alone on an
	// equal part of the cluster.
	P99Unfairness   Spread `json:"p99_unfairness"`
	WorstUnfairness Spread `json:"worst_unfairness"`
	// Changes counts the changes of size and the starts after the first one, for each job.
	Changes Spread `json:"changes"`
	// Gain is the hours by the default scheduler ÷ these, in the same column with the same seed; GainUnstuck without the
	// jobs that the default scheduler had to start anew.
	Gain        Spread `json:"gain"`
	GainUnstuck Spread `json:"gain_unstuck"`
}

// Table writes a row per result, and a line about the cluster.
func (r Elastic) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{{Head: "policy", Text: true}}}
	for _, name := range r.Columns {
		t.Columns = append(t.Columns, report.Column{Head: strings.TrimSuffix(filepath.Base(name), ".csv")})
	}
	for _, head := range []string{"mean h", "p99 h", "wait", "run", "unfair p99", "worst", "changes", "gain", "unstuck"} {
		t.Columns = append(t.Columns, report.Column{Head: head})
	}
	for i := range r.Results {
		x := &r.Results[i]
		row := []string{x.Policy}
		for _, h := range x.Hours {
			row = append(row, h.precise())
		}
		t.Rows = append(t.Rows, append(row, x.MeanHours.precise(), x.P99Hours.String(), x.WaitChange.percent(), x.RunChange.percent(),
			x.P99Unfairness.String(), x.WorstUnfairness.String(), strconv.FormatFloat(x.Changes.Mean, 'f', 2, 64), x.Gain.String(),
			x.GainUnstuck.String()))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "mean hours from arrival to end on %d nodes with %d GPUs (%s); wait and run against static; gain against kubernetes; %d jobs left out, %d seeds\n",
		r.Nodes, r.GPUs, r.Kind, r.LeftOut, len(r.Seeds))
	return err
}

// percent writes "-22.0 %".
func (s Spread) percent() string { return fmt.Sprintf("%+.1f %%", 100*s.Mean) }
