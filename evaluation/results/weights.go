package results

import (
	"io"
	"strconv"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Weights is what weights of interference cost and brought, a result per weight.
type Weights struct {
	Results []WeightResult `json:"results"`
}

// WeightResult is what one weight made of the arrivals of all seeds.
type WeightResult struct {
	// Weight of interference in percent, beside 100 for fragmentation.
	Weight int64 `json:"weight"`
	// AllocatedPercent is the allocated part of all GPUs in the end.
	AllocatedPercent Spread `json:"allocated_percent"`
	// LostPercent is the part of all GPUs whose work tenants lose by each other.
	LostPercent Spread `json:"lost_percent"`
	// SlowdownMean and SlowdownMax are over the pods with a part of a device.
	SlowdownMean Spread `json:"slowdown_mean"`
	SlowdownMax  Spread `json:"slowdown_max"`
}

// Table writes a row per weight.
func (w Weights) Table(out io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "weight %"}, {Head: "allocated %"}, {Head: "lost %"}, {Head: "mean slowdown"}, {Head: "worst slowdown"},
	}}
	for _, r := range w.Results {
		t.Rows = append(t.Rows, []string{
			strconv.FormatInt(r.Weight, 10), r.AllocatedPercent.String(), r.LostPercent.String(), r.SlowdownMean.precise(),
			r.SlowdownMax.String(),
		})
	}
	return t.Write(out)
}
