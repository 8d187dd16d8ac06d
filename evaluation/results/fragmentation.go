package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Fragmentation is what policies made of the same arrivals, a result per policy.
type Fragmentation struct {
	Results []PolicyResult `json:"results"`
	// Bound is what any policy could have made of them; nil in a report without bounds.
	Bound *Bound `json:"bound,omitempty"`
}

// Bound is the part of all GPUs that any policy could allocate in the end, in percent.
type Bound struct {
	// Most is what no policy exceeds, Feasible what a plan reaches that knows all pods in advance, Gap the difference.
	Most     Spread `json:"most"`
	Feasible Spread `json:"feasible"`
	Gap      Spread `json:"gap"`
	// Cut says that a limit ended a search early, so that a lower bound may exist.
	Cut bool `json:"cut"`
}

// PolicyResult is what one policy made of the arrivals of all seeds.
type PolicyResult struct {
	Policy string `json:"policy"`
	// Seeds of the arrivals, a run each.
	Seeds []int64 `json:"seeds"`
	// AllocatedPercent is the allocated part of all GPUs, by the requested percentage.
	AllocatedPercent ByLoad `json:"allocated_percent"`
	// FragmentationPercent is the part of all GPUs that is idle and that the usual pods cannot use, on average over them.
	FragmentationPercent ByLoad `json:"fragmentation_percent"`
	// SecondsPerRun is the mean wall time of a run; nil in a report without times.
	SecondsPerRun *float64 `json:"seconds_per_run,omitempty"`
}

// ByLoad is a figure at several loads, in ascending order. In JSON it is an object with the loads as keys.
type ByLoad []AtLoad

// AtLoad is a figure when the requests that had arrived made up Load percent of all GPUs.
type AtLoad struct {
	Load int
	Spread
}

// MarshalJSON keeps the order of the loads: {"80":{…},"100":{…}}.
func (l ByLoad) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range l {
		if i > 0 {
			b.WriteByte(',')
		}
		figure, err := json.Marshal(l[i].Spread)
		if err != nil {
			return nil, fmt.Errorf("write figure at load %d: %w", l[i].Load, err)
		}
		b.WriteString(strconv.Quote(strconv.Itoa(l[i].Load)) + ":")
		b.Write(figure)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// At returns the figure at a load, and false where there is none.
func (l ByLoad) At(load int) (Spread, bool) {
	i := slices.IndexFunc(l, func(a AtLoad) bool { return a.Load == load })
	if i < 0 {
		return Spread{}, false
	}
	return l[i].Spread, true
}

// Table writes a row per policy.
func (f Fragmentation) Table(w io.Writer) error {
	if len(f.Results) == 0 {
		return nil
	}
	first := f.Results[0]
	t := report.Table{Columns: []report.Column{{Head: "policy", Text: true}, {Head: "seeds"}}}
	t.Columns = append(t.Columns, first.AllocatedPercent.columns("allocated %")...)
	if f.Bound != nil {
		t.Columns = append(t.Columns, report.Column{Head: "at most %"}, report.Column{Head: "gap"})
	}
	t.Columns = append(t.Columns, first.FragmentationPercent.columns("fragmented %")...)
	if first.SecondsPerRun != nil {
		t.Columns = append(t.Columns, report.Column{Head: "s per run"})
	}
	for _, r := range f.Results {
		row := append([]string{r.Policy, strconv.Itoa(len(r.Seeds))}, r.AllocatedPercent.cells()...)
		if f.Bound != nil {
			row = append(row, f.Bound.Most.String(), strconv.FormatFloat(f.Bound.Gap.Mean, 'f', 2, 64))
		}
		row = append(row, r.FragmentationPercent.cells()...)
		if r.SecondsPerRun != nil {
			row = append(row, strconv.FormatFloat(*r.SecondsPerRun, 'f', 2, 64))
		}
		t.Rows = append(t.Rows, row)
	}
	return t.Write(w)
}

func (l ByLoad) columns(what string) []report.Column {
	all := make([]report.Column, 0, len(l))
	for _, a := range l {
		all = append(all, report.Column{Head: fmt.Sprintf("%s at %d", what, a.Load)})
	}
	return all
}

func (l ByLoad) cells() []string {
	all := make([]string, 0, len(l))
	for _, a := range l {
		all = append(all, a.String())
	}
	return all
}
