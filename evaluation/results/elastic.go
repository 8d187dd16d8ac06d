package results

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Elastic is what policies made of the same jobs with numbers of workers that change, a result per policy.
type Elastic struct {
	Setting
	// Groups are the tables: one for each format of workloads and each load.
	Groups []ElasticGroup `json:"groups"`
}

// ElasticGroup is the results with workloads of one format at one load.
type ElasticGroup struct {
	// Jobs is the format of the workloads.
	Jobs string `json:"jobs"`
	// Load is the load, 0 for workloads as they are.
	Load float64 `json:"load"`
	// Columns are the workloads.
	Columns []string `json:"columns"`
	// Asked is, for each column, the GPU time for which the jobs ask ÷ that of the cluster from the first to the last
	// arrival.
	Asked   []Spread        `json:"asked"`
	Results []ElasticResult `json:"results"`
	// Compared are single policies against others, by column.
	Compared []ElasticCompared `json:"compared"`
}

// ElasticCompared is one policy against another one, a change for each column.
type ElasticCompared struct {
	Policy  string          `json:"policy"`
	Base    string          `json:"base"`
	Columns []ElasticChange `json:"columns"`
}

// ElasticChange is by which part figures are more than those of another policy: −0.22 is 22 percent less.
type ElasticChange struct {
	// Hours from arrival to end, Wait those from arrival to start, Run those from start to end.
	Hours Spread `json:"hours"`
	Wait  Spread `json:"wait"`
	Run   Spread `json:"run"`
	// Changes of size, P99Unfairness and WorstUnfairness are as in ElasticResult.
	Changes         Spread `json:"changes"`
	P99Unfairness   Spread `json:"p99_unfairness"`
	WorstUnfairness Spread `json:"worst_unfairness"`
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

// Table writes for each group a row per result, and a row per column of the policies that are compared; at the end a line
// about the cluster.
func (r Elastic) Table(w io.Writer) error {
	for i := range r.Groups {
		g := &r.Groups[i]
		if err := g.head(w); err != nil {
			return err
		}
		if err := g.results().Write(w); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if t := g.compared(); len(t.Rows) > 0 {
			if err := t.Write(w); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(w, r.note("; wait and run against static; gain against kubernetes"))
	return err
}

// head writes what the jobs of a group are.
func (g *ElasticGroup) head(w io.Writer) error {
	load := "as they are"
	if g.Load > 0 {
		load = fmt.Sprintf("load %g", g.Load)
	}
	asked := make([]string, 0, len(g.Asked))
	for _, a := range g.Asked {
		asked = append(asked, strconv.FormatFloat(a.Mean, 'f', 2, 64))
	}
	_, err := fmt.Fprintf(w, "%s, %s; the jobs ask for so many times the GPU time of the cluster: %s\n", g.Jobs, load, strings.Join(asked, ", "))
	return err
}

// results returns the table with a row for each policy.
func (g *ElasticGroup) results() report.Table {
	t := policyTable(g.Columns, "mean h", "p99 h", "wait", "run", "unfair p99", "worst", "changes", "gain", "unstuck")
	for i := range g.Results {
		x := &g.Results[i]
		t.Rows = append(t.Rows, append(hoursRow(x.Policy, x.Hours), x.MeanHours.precise(), x.P99Hours.String(), x.WaitChange.percent(),
			x.RunChange.percent(), x.P99Unfairness.String(), x.WorstUnfairness.String(), strconv.FormatFloat(x.Changes.Mean, 'f', 2, 64),
			x.Gain.String(), x.GainUnstuck.String()))
	}
	return t
}

// compared returns the table with a row for each comparison and column.
func (g *ElasticGroup) compared() report.Table {
	t := report.Table{Columns: []report.Column{{Head: "policy", Text: true}, {Head: "against", Text: true}, {Head: "workload", Text: true}}}
	for _, head := range []string{"hours", "wait", "run", "changes", "unfair p99", "worst"} {
		t.Columns = append(t.Columns, report.Column{Head: head})
	}
	for i := range g.Compared {
		c := &g.Compared[i]
		for k := range c.Columns {
			x := &c.Columns[k]
			t.Rows = append(t.Rows, []string{
				c.Policy, c.Base, workloadName(g.Columns[k]), x.Hours.percent(), x.Wait.percent(), x.Run.percent(), x.Changes.percent(),
				x.P99Unfairness.percent(), x.WorstUnfairness.percent(),
			})
		}
	}
	return t
}

// percent writes "-22.0 %".
func (s Spread) percent() string { return fmt.Sprintf("%+.1f %%", 100*s.Mean) }
