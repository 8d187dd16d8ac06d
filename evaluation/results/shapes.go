package results

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Shapes is how much worse each policy is than the best one, on clusters and workloads that none was tuned for.
type Shapes struct {
	Seeds   []int64       `json:"seeds"`
	Results []ShapeRegret `json:"results"`
	// Shapes has the figures of each shape and policy.
	Shapes []ShapeFigures `json:"shapes"`
}

// ShapeRegret is the regret of one policy over all shapes of a sort.
type ShapeRegret struct {
	Policy string `json:"policy"`
	// Fills: percentage points of all GPUs. Flows: percent of the mean job completion time. nil without such shapes.
	Fills *Regret `json:"fills,omitempty"`
	Flows *Regret `json:"flows,omitempty"`
}

// Regret is what a policy lost against the best policy of each shape.
type Regret struct {
	Mean float64 `json:"mean"`
	// Worst is the largest, of the shape of a number.
	Worst      float64 `json:"worst"`
	WorstShape int     `json:"worst_shape"`
	// NearPercent is the percentage of the shapes with a regret within 0.1 (fills) or 1 (flows).
	NearPercent float64 `json:"near_percent"`
}

// ShapeFigures is what each policy made of one shape, in the mean over the seeds.
type ShapeFigures struct {
	Number int    `json:"number"`
	Family string `json:"family"`
	// Allocated percentage of all GPUs by policy, for fills; JCT is the mean job completion time in seconds, for flows.
	Allocated map[string]float64 `json:"allocated_percent,omitempty"`
	JCT       map[string]float64 `json:"jct_seconds,omitempty"`
	// AtMost is the percentage that no policy can exceed, of a fill; Gap is how much of it may be the bound's own error.
	AtMost float64 `json:"at_most_percent,omitempty"`
	Gap    float64 `json:"bound_gap_percent,omitempty"`
}

// Table writes a row per policy.
func (s Shapes) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "policy", Text: true},
		{Head: "fills: mean"}, {Head: "worst"}, {Head: "within .1"},
		{Head: "flows: mean"}, {Head: "worst"}, {Head: "within 1 %"},
	}}
	for i := range s.Results {
		r := &s.Results[i]
		t.Rows = append(t.Rows, append(append([]string{r.Policy}, r.Fills.cells("")...), r.Flows.cells(" %")...))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	return s.writeBound(w)
}

// writeBound says how far the best policies of the fills are from what no policy can exceed.
func (s Shapes) writeBound(w io.Writer) error {
	fills, distance, gap := 0., 0., 0.
	for i := range s.Shapes {
		f := &s.Shapes[i]
		if len(f.Allocated) == 0 {
			continue
		}
		fills++
		distance += f.AtMost - slices.Max(slices.Collect(maps.Values(f.Allocated)))
		gap += f.Gap
	}
	if fills == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nOn average the best policy of a fill is %.2f points below the bound that no policy can exceed. The bound may be %.2f points too high.\n",
		distance/fills, gap/fills)
	return err
}

func (r *Regret) cells(unit string) []string {
	if r == nil {
		return []string{"", "", ""}
	}
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) + unit }
	return []string{number(r.Mean), fmt.Sprintf("%s (shape %d)", number(r.Worst), r.WorstShape), strconv.FormatFloat(r.NearPercent, 'f', 0, 64) + " %"}
}
