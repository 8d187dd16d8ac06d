package results

import (
	"fmt"
	"io"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Notebooks is how much longer notebooks take on whole GPUs than on shares, by the duty.
type Notebooks struct {
	Count int           `json:"notebooks"`
	GPUs  int           `json:"gpus"`
	Seeds []int64       `json:"seeds"`
	Rows  []NotebookRow `json:"rows"`
}

// NotebookRow is one way to share a GPU, with a point for each duty, ascending.
type NotebookRow struct {
	Sharing string          `json:"sharing"`
	Points  []NotebookPoint `json:"points"`
}

// NotebookPoint is the time on whole GPUs ÷ that on shares.
type NotebookPoint struct {
	Duty  float64 `json:"duty"`
	Ratio Spread  `json:"ratio"`
}

// postersRatio is what the poster of DynamoML reports, at an unknown duty.
const postersRatio = 2.39

// Ends returns the duty at which the ratio falls below a bound for the first time, on a line between two points; 0 where the first one is below it, 1 where none is.
func (r *NotebookRow) Ends(bound float64) float64 {
	for i := range r.Points {
		b := &r.Points[i]
		if b.Ratio.Mean >= bound {
			continue
		}
		if i == 0 {
			return 0
		}
		a := &r.Points[i-1]
		return a.Duty + (b.Duty-a.Duty)*(a.Ratio.Mean-bound)/(a.Ratio.Mean-b.Ratio.Mean)
	}
	return 1
}

// Table writes a row for each duty.
func (r Notebooks) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{{Head: "duty"}}}
	for i := range r.Rows {
		t.Columns = append(t.Columns, report.Column{Head: r.Rows[i].Sharing})
		for k := range r.Rows[i].Points {
			p := &r.Rows[i].Points[k]
			if i == 0 {
				t.Rows = append(t.Rows, []string{fmt.Sprintf("%g %%", report.Round(100*p.Duty))})
			}
			t.Rows[k] = append(t.Rows[k], p.Ratio.String())
		}
	}
	if err := t.Write(w); err != nil {
		return err
	}
	for i := range r.Rows {
		end := r.Rows[i].Ends(postersRatio)
		text := fmt.Sprintf("ends at a duty of %.1f %%", 100*end)
		switch end {
		case 0:
			text = "is not reached at the least duty"
		case 1:
			text = "holds at all these duties"
		}
		if _, err := fmt.Fprintf(w, "%s: %.2f × %s\n", r.Rows[i].Sharing, postersRatio, text); err != nil {
			return err
		}
	}
	return nil
}
