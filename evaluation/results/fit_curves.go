package results

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// CurveFit is the curves of the classes of work, with how wrong they are, and how wrong rules are for the bandwidth of work
// on a part of the SMs.
type CurveFit struct {
	Results   []CurveResult     `json:"results"`
	Bandwidth []BandwidthResult `json:"bandwidth"`
	// Profiles are how many measurements of workloads the files have.
	Profiles int `json:"profiles"`
}

// CurveResult is the curve of one class. Errors are of the speed on a part of the SMs, as a part of that on all.
type CurveResult struct {
	Class string `json:"class"`
	// Points with measurements, and the number of Families of their models; of models where all are of one family.
	Points   int `json:"points"`
	Families int `json:"families"`
	// Fixed and Error are those of interference.Curve.
	Fixed float64 `json:"fixed"`
	Error float64 `json:"error"`
	// MAE is the mean absolute error on the points of the fit, HeldOut on families outside of it: each in turn.
	MAE     float64 `json:"mae"`
	HeldOut float64 `json:"mae_held_out"`
	// Proportional and Unaffected are the errors of taking the speed to follow the SMs, and not to.
	Proportional float64 `json:"mae_proportional"`
	Unaffected   float64 `json:"mae_unaffected"`
	// Below is the part of the points that are more than 5 % slower than in proportion to the SMs.
	Below float64 `json:"below_proportional"`
}

// BandwidthResult is the error of a rule for the bandwidth on a part of the SMs, as a part of that on the largest
// measured part.
type BandwidthResult struct {
	Rule   string  `json:"rule"`
	Points int     `json:"points"`
	MAE    float64 `json:"mae"`
	// Bias is the mean of predicted − measured.
	Bias float64 `json:"bias"`
}

// Table writes a row per class, and then a row per rule.
func (f *CurveFit) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "class", Text: true}, {Head: "points"}, {Head: "families"}, {Head: "fixed"}, {Head: "MAE"}, {Head: "held out"},
		{Head: "proportional"}, {Head: "unaffected"}, {Head: "below proportional"},
	}}
	for _, r := range f.Results {
		t.Rows = append(t.Rows, []string{
			r.Class, strconv.Itoa(r.Points), strconv.Itoa(r.Families), fmt.Sprintf("%.2f", r.Fixed), figure(r.MAE), figure(r.HeldOut),
			figure(r.Proportional), figure(r.Unaffected), figure(r.Below),
		})
	}
	if err := t.Write(w); err != nil || len(f.Bandwidth) == 0 {
		return err
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	t = report.Table{Columns: []report.Column{{Head: "bandwidth", Text: true}, {Head: "points"}, {Head: "MAE"}, {Head: "bias"}}}
	for _, r := range f.Bandwidth {
		t.Rows = append(t.Rows, []string{r.Rule, strconv.Itoa(r.Points), figure(r.MAE), figure(r.Bias)})
	}
	return t.Write(w)
}

func figure(x float64) string { return fmt.Sprintf("%.3f", x) }

// Go writes the shipped file of the curves. The date is that of the fit, "" for none.
func (f *CurveFit) Go(w io.Writer, date string) error {
	var b strings.Builder
	b.WriteString("package interference\n\n// fittedCurves are the curves that are shipped, by class.\n//\n")
	fmt.Fprintf(&b, "// Fitted%s on %d public measurements of work on parts of the SMs, of:\n//\n", on(date), f.Profiles)
	b.WriteString(`//   - iGniter, github.com/icloud-ecnu/igniter at b1ff2ab (V100, MPS; without a licence)
//   - ParvaGPU, github.com/MunQ-Lee/ParvaGPU_SC24 at 5f3de1e (A100, MIG; MIT)
//   - MISO, github.com/boringlee24/socc22-miso at 39b1ee6 (A100, MIG; MIT)
//   - MuxServe, github.com/hao-ai-lab/MuxServe at 2231480 (A100, MPS; without a licence)
//
// This writes it:
//
//	go run ./evaluation fit curves --curves v100_mps_latency_throughput.csv --curves a100_mig_mps_profile.csv \
//	  --curves mig_slice_step_time.csv --curves llama_mps_profile_a100.csv -o go
//
// Behind each are the mean absolute errors of the speed: on models that were held out, of a speed in proportion to the
// SMs, of a speed that they do not matter to.
`)
	b.WriteString("var fittedCurves = [classes]Curve{\n")
	width := 0
	for _, r := range f.Results {
		width = max(width, len(r.Class))
	}
	for _, r := range f.Results {
		name := strings.ToUpper(r.Class[:1]) + r.Class[1:] + ":"
		value := fmt.Sprintf("{Fixed: %.2f, Error: %.2f},", r.Fixed, r.Error)
		errors := fmt.Sprintf("%s; %s, %s", figure(r.HeldOut), figure(r.Proportional), figure(r.Unaffected))
		fmt.Fprintf(&b, "\tClass%-*s %s // %s\n", width+1, name, value, errors)
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
