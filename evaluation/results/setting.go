package results

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Setting is the cluster on which policies were compared, and the seeds.
type Setting struct {
	// Kind of node, Nodes with so many GPUs each.
	Kind  string `json:"kind"`
	Nodes int    `json:"nodes"`
	GPUs  int    `json:"gpus"`
	// LeftOut counts the jobs of applications without a measurement on the nodes, and those of traces that ask for more
	// GPUs than there are.
	LeftOut int `json:"left_out"`
	// Seeds of the random choices, a run of each column each.
	Seeds []int64 `json:"seeds"`
}

// note writes the line below a table of hours.
func (s *Setting) note(against string) string {
	return fmt.Sprintf("mean hours from arrival to end on %d nodes with %d GPUs (%s)%s; %d jobs left out, %d seeds\n",
		s.Nodes, s.GPUs, s.Kind, against, s.LeftOut, len(s.Seeds))
}

// policyTable returns a table with a column of policies, one for each workload or load, and further ones.
func policyTable(columns []string, heads ...string) report.Table {
	t := report.Table{Columns: []report.Column{{Head: "policy", Text: true}}}
	for _, name := range columns {
		t.Columns = append(t.Columns, report.Column{Head: workloadName(name)})
	}
	for _, head := range heads {
		t.Columns = append(t.Columns, report.Column{Head: head})
	}
	return t
}

// workloadName is the name of a workload's file without its folder and ending.
func workloadName(file string) string { return strings.TrimSuffix(filepath.Base(file), ".csv") }

// hoursRow begins a row of policyTable: the policy, and its hours in each column.
func hoursRow(policy string, hours []Spread) []string {
	row := []string{policy}
	for _, h := range hours {
		row = append(row, h.precise())
	}
	return row
}
