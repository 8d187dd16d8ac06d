package results

import (
	"fmt"
	"io"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Splits is what divisions of requests over unlike GPUs give, as played and by the formulas of queueing.
type Splits struct {
	Latencies []SplitLatency   `json:"latencies"`
	Sustained []SplitSustained `json:"sustained"`
}

// Compared is a figure as played and by a formula.
type Compared struct {
	Played  float64 `json:"played"`
	Formula float64 `json:"formula"`
}

// SplitLatency is what a division gives at a rate of requests.
type SplitLatency struct {
	// Mix has what each GPU serves in requests a second: "10:5:3.3:1".
	Mix string `json:"mix"`
	// Busy is the rate as a part of what all GPUs serve together.
	Busy     float64 `json:"busy"`
	Division string  `json:"division"`
	// Rates are the requests a second that each GPU gets.
	Rates []float64 `json:"rates"`
	// Overloaded says that a GPU gets more than it serves: latencies grow without an end, and there are none here.
	Overloaded bool `json:"overloaded"`
	// Mean and P99 are latencies of all requests, and SlowestP99 is that of the GPU where it is the highest, in milliseconds.
	Mean       *Compared `json:"mean_ms,omitempty"`
	P99        *Compared `json:"p99_ms,omitempty"`
	SlowestP99 *Compared `json:"slowest_p99_ms,omitempty"`
}

// SplitSustained is the highest rate in requests a second at which a division overloads no GPU.
type SplitSustained struct {
	Mix      string `json:"mix"`
	Division string `json:"division"`
	Compared
}

// The divisions that others are compared with.
const (
	// UniformSplit gives all GPUs the same.
	UniformSplit = "uniform"
	// ProportionalSplit gives each GPU requests in proportion to what it serves.
	ProportionalSplit = "proportional"
)

// Table writes the latencies and then the sustained rates.
func (s Splits) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "mix", Text: true}, {Head: "busy"}, {Head: "division", Text: true}, {Head: "mean ms"}, {Head: "formula"}, {Head: "p99 ms"},
		{Head: "formula"}, {Head: "p99 ms of the slowest GPU"}, {Head: "formula"}, {Head: "mean ÷ proportional"}, {Head: "p99 ÷ proportional"},
	}}
	for i := range s.Latencies {
		x := &s.Latencies[i]
		row := []string{x.Mix, fmt.Sprintf("%g", x.Busy), x.Division}
		if x.Overloaded {
			t.Rows = append(t.Rows, append(row, "overloaded", "", "", "", "", "", "", ""))
			continue
		}
		for _, c := range []*Compared{x.Mean, x.P99, x.SlowestP99} {
			row = append(row, fmt.Sprintf("%.1f", c.Played), fmt.Sprintf("%.1f", c.Formula))
		}
		p := s.proportional(x)
		t.Rows = append(t.Rows, append(row, ratio(x.Mean, p.Mean), ratio(x.P99, p.P99)))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, "\nthe highest rate at which no GPU is overloaded, in requests a second"); err != nil {
		return err
	}
	return s.writeSustained(w)
}

func (s Splits) writeSustained(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "mix", Text: true}, {Head: "division", Text: true}, {Head: "rate"}, {Head: "formula"}, {Head: "÷ uniform"}, {Head: "formula"},
	}}
	var uniform Compared
	for _, x := range s.Sustained {
		if x.Division == UniformSplit {
			uniform = x.Compared
		}
		t.Rows = append(t.Rows, []string{
			x.Mix, x.Division, fmt.Sprintf("%.3f", x.Played), fmt.Sprintf("%.3f", x.Formula),
			fmt.Sprintf("%.3f", x.Played/uniform.Played), fmt.Sprintf("%.3f", x.Formula/uniform.Formula),
		})
	}
	return t.Write(w)
}

// proportional returns the proportional division at the same rate.
func (s Splits) proportional(x *SplitLatency) *SplitLatency {
	for i := range s.Latencies {
		if p := &s.Latencies[i]; p.Mix == x.Mix && p.Busy == x.Busy && p.Division == ProportionalSplit {
			return p
		}
	}
	return &SplitLatency{}
}

// ratio writes a played figure as a part of another one, "" where that is unknown.
func ratio(x, of *Compared) string {
	if of == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", x.Played/of.Played)
}
