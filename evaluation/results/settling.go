package results

import (
	"fmt"
	"io"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Settling is what became of fleets in closed loops.
type Settling struct {
	Runs []Settled `json:"runs"`
}

// Settled is what became of one fleet.
type Settled struct {
	World       string  `json:"world"`
	LoadSeconds float64 `json:"load_seconds"`
	Noise       float64 `json:"noise"`
	// Right is the least constant size that keeps the promise all the time, Most the largest size after the first hour.
	Right int `json:"right_replicas"`
	Most  int `json:"most_replicas"`
	// ChangesPerDay counts those after the first hour. RestMinutes is the time from the change of the world to the last change of the size before an
	// hour without one.
	ChangesPerDay float64 `json:"changes_per_day"`
	RestMinutes   float64 `json:"rest_minutes"`
	// BrokenPercent is that of the windows in which the promise was broken, PartOfConstant what the fleet had of the replicas of the constant size.
	BrokenPercent  float64 `json:"broken_percent"`
	PartOfConstant float64 `json:"part_of_constant"`
}

// Table writes a row for each run.
func (s Settling) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "world", Text: true}, {Head: "load time"}, {Head: "noise"}, {Head: "changes a day"}, {Head: "at rest after min"}, {Head: "right size"}, {Head: "most"},
		{Head: "broken %"}, {Head: "GPU-hours ÷ constant"},
	}}
	for _, x := range s.Runs {
		load := time.Duration(x.LoadSeconds * float64(time.Second))
		t.Rows = append(t.Rows, []string{
			x.World, load.String(), fmt.Sprintf("%g", x.Noise), fmt.Sprintf("%.1f", x.ChangesPerDay), fmt.Sprintf("%.1f", x.RestMinutes), fmt.Sprint(x.Right),
			fmt.Sprint(x.Most), fmt.Sprintf("%.1f", x.BrokenPercent), fmt.Sprintf("%.2f", x.PartOfConstant),
		})
	}
	return t.Write(w)
}
