package results

import (
	"io"
	"strconv"
)

// Training is what policies made of the same jobs whose workers train together, a result per policy.
type Training struct {
	Setting
	// Columns are the workloads, or the loads.
	Columns []string         `json:"columns"`
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
	// LargeWait is the hours from arrival to the first start of jobs with a quarter of the GPUs or more.
	LargeWait Spread `json:"large_wait_hours"`
	// Idle is the part of the GPU time that workers held in which their job did no work.
	Idle Spread `json:"idle"`
}

// Table writes a row per result, and a line about the cluster.
func (r Training) Table(w io.Writer) error {
	t := policyTable(r.Columns, "mean h", "gain", "unstuck", "restarts", "stuck", "large wait h", "idle")
	for i := range r.Results {
		x := &r.Results[i]
		t.Rows = append(t.Rows, append(hoursRow(x.Policy, x.Hours), x.MeanHours.precise(), x.Gain.String(), x.GainUnstuck.String(),
			strconv.FormatFloat(x.Restarts.Mean, 'f', 1, 64), strconv.FormatFloat(x.Stuck.Mean, 'f', 1, 64), x.LargeWait.precise(), x.Idle.precise()))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	_, err := io.WriteString(w, r.note(", gain against kubernetes"))
	return err
}
