package results

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Inference is what policies that size fleets of inference replicas made of the same loads: a result per load, promise, policy, setting
// and share.
type Inference struct {
	Results []InferenceResult `json:"results"`
}

// InferenceResult is what one policy made of one load.
type InferenceResult struct {
	Load string `json:"load"`
	// PromiseMillis is the promised p99 in milliseconds, Times that as a multiple of the latency alone on the smallest share.
	PromiseMillis float64 `json:"promise_ms"`
	Times         float64 `json:"times"`
	Policy        string  `json:"policy"`
	Setting       string  `json:"setting"`
	// Share of a GPU that each replica has: "40 %", or "all" where the policy chooses among all.
	Share string `json:"share"`
	// Windows of a minute, and Broken those whose p99 was above the promise.
	Windows  int `json:"windows"`
	Broken   int `json:"broken"`
	Requests int `json:"requests"`
	Late     int `json:"late"`
	// GPUs is the mean number of GPUs that all replicas had.
	GPUs       float64 `json:"gpus"`
	Moves      int     `json:"moves"`
	MeanMillis float64 `json:"mean_ms"`
	P99Millis  float64 `json:"p99_ms"`
}

// broken is the part of the windows that are broken.
func (r *InferenceResult) broken() float64 { return float64(r.Broken) / float64(max(1, r.Windows)) }

// wantedBroken is the part of the windows that may be broken.
const wantedBroken = .001

// Table writes a row per result, and then the fewest GPUs of each policy with less than a thousandth of the windows broken.
func (r Inference) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "load", Text: true}, {Head: "promise"}, {Head: "policy", Text: true}, {Head: "setting", Text: true}, {Head: "share"},
		{Head: "GPUs"}, {Head: "windows broken"}, {Head: "late"}, {Head: "mean ms"}, {Head: "p99 ms"}, {Head: "moves"},
	}}
	for i := range r.Results {
		x := &r.Results[i]
		t.Rows = append(t.Rows, []string{
			x.Load, fmt.Sprintf("%g × = %.1f ms", x.Times, x.PromiseMillis), x.Policy, x.Setting, x.Share, fmt.Sprintf("%.2f", x.GPUs),
			fmt.Sprintf("%d of %d, %.3f %%", x.Broken, x.Windows, 100*x.broken()), fmt.Sprintf("%.4f %%", 100*float64(x.Late)/float64(max(1, x.Requests))),
			fmt.Sprintf("%.2f", x.MeanMillis), fmt.Sprintf("%.2f", x.P99Millis), strconv.Itoa(x.Moves),
		})
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\nthe fewest GPUs with less than %g %% of the windows broken\n", 100*wantedBroken); err != nil {
		return err
	}
	best := report.Table{Columns: []report.Column{
		{Head: "load", Text: true}, {Head: "promise"}, {Head: "policy", Text: true}, {Head: "setting", Text: true}, {Head: "share"}, {Head: "GPUs"},
		{Head: "windows broken"},
	}}
	for _, x := range r.best() {
		best.Rows = append(best.Rows, []string{
			x.Load, fmt.Sprintf("%g ×", x.Times), x.Policy, x.Setting, x.Share, fmt.Sprintf("%.2f", x.GPUs), fmt.Sprintf("%.3f %%", 100*x.broken()),
		})
	}
	return best.Write(w)
}

// best returns the cheapest result of each policy that keeps the promise, in the order of the results.
func (r Inference) best() []InferenceResult {
	var out []InferenceResult
	for i := range r.Results {
		x := r.Results[i]
		if x.broken() >= wantedBroken {
			continue
		}
		at := slices.IndexFunc(out, func(o InferenceResult) bool {
			return o.Load == x.Load && o.Times == x.Times && o.Policy == x.Policy
		})
		if at < 0 {
			out = append(out, x)
		} else if cmp.Compare(x.GPUs, out[at].GPUs) < 0 {
			out[at] = x
		}
	}
	return out
}
