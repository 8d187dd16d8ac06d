package results

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Training is what policies made of the same jobs whose workers train together, a result per policy.
type Training struct {
	// Kind of node, Nodes with so many GPUs each.
	Kind  string `json:"kind"`
	Nodes int    `json:"nodes"`
	GPUs  int    `json:"gpus"`
	// Columns are the workloads, or the loads.
	Columns []string `json:"columns"`
	// LeftOut counts the jobs of applications without a measurement on the nodes.
	LeftOut int `json:"left_out"`
	// Seeds of the random choices, a run of each column each.
	Seeds   []int64          `json:"seeds"`
	Results []TrainingResult `json:"results"`
}

// TrainingResult is what one policy made of the jobs. Its figures other than Hours are means over the columns, with the
// deviation over the seeds.
type TrainingResult struct {
	Policy string `json:"policy"`
	// Hours from arrival to end, the mean over the jobs of each column.
	Hours []Spread `json:"hours"`
	// MeanHours is the mean over the columns.
	MeanHours Spread `json:"mean_hours"`
	// Gain is the hours by the default scheduler ÷ these, in the same column with the same seed; GainUnstuck without the
	// jobs that the default scheduler had to start anew.
	Gain        Spread `json:"gain"`
	GainUnstuck Spread `json:"gain_unstuck"`
	// Restarts counts the starts after the first one of each job, Stuck the jobs with a new start because a part of
	// their workers waited for the others.
	Restarts Spread `json:"restarts"`
	Stuck    Spread `json:"stuck"`
	// Idle is the part of the GPU time that workers held in which their job did no work.
	Idle Spread `json:"idle"`
}

// Table writes a row per result, and a line about the cluster.
func (r Training) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{{Head: "policy", Text: true}}}
	for _, name := range r.Columns {
		t.Columns = append(t.Columns, report.Column{Head: strings.TrimSuffix(filepath.Base(name), ".csv")})
	}
	for _, head := range []string{"mean h", "gain", "unstuck", "restarts", "stuck", "idle"} {
		t.Columns = append(t.Columns, report.Column{Head: head})
	}
	for i := range r.Results {
		x := &r.Results[i]
		row := []string{x.Policy}
		for _, h := range x.Hours {
			row = append(row, h.precise())
		}
		t.Rows = append(t.Rows, append(row, x.MeanHours.precise(), x.Gain.String(), x.GainUnstuck.String(),
			strconv.FormatFloat(x.Restarts.Mean, 'f', 1, 64), strconv.FormatFloat(x.Stuck.Mean, 'f', 1, 64), x.Idle.precise()))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "mean hours from arrival to end on %d nodes with %d GPUs (%s), gain against kubernetes; %d jobs left out, %d seeds\n",
		r.Nodes, r.GPUs, r.Kind, r.LeftOut, len(r.Seeds))
	return err
}
