package results

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/pkg/interference"
)

// FeatureFit is a fitted predictor, with its errors on networks outside of the fit.
type FeatureFit struct {
	Results []FeatureResult `json:"results"`
	// Predictor is the fit on all networks, and Coefficients has its figures.
	Predictor    interference.Predictor `json:"-"`
	Coefficients Coefficients           `json:"coefficients"`
	// Networks and Profiles (for the bandwidth; 0 without one) are the sizes of the fit.
	Networks int `json:"networks"`
	Profiles int `json:"profiles"`
}

// Coefficients are the figures of an interference.Predictor, in whose order they stand.
type Coefficients struct {
	SM             []float64 `json:"sm"`
	MemoryBytes    []float64 `json:"memory_bytes"`
	Bandwidth      float64   `json:"bandwidth"`
	SMError        float64   `json:"sm_error"`
	BandwidthError float64   `json:"bandwidth_error"`
	MemoryError    float64   `json:"memory_error_bytes"`
	Widening       float64   `json:"sm_error_per_decade"`
}

// CoefficientsOf returns the figures of a predictor.
func CoefficientsOf(p *interference.Predictor) Coefficients {
	return Coefficients{
		SM: p.SM[:], MemoryBytes: p.Memory[:], Bandwidth: p.Bandwidth, SMError: p.SMError, BandwidthError: p.BandwidthError,
		MemoryError: p.MemoryError, Widening: p.Widening,
	}
}

// FeatureResult is how wrong one way of predicting is on networks that it did not see.
type FeatureResult struct {
	// Target is the predicted quantity: "sm", a part from 0 to 1, or "memory_mib".
	Target string `json:"target"`
	// Split is "fifth" for one random fifth per seed, "five-fold" for all five fifths of the first seed.
	Split string `json:"split"`
	// Model is "mean" (of the networks seen), "least-squares" (on the plain features), or "features" (the shipped one).
	Model string `json:"model"`
	// Networks with a prediction, of all splits together.
	Networks int `json:"networks"`
	// MAE is the mean absolute error, RMSE the root of the mean square, over the splits.
	MAE  Spread `json:"mae"`
	RMSE Spread `json:"rmse"`
}

// Table writes a row per result.
func (f *FeatureFit) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "target", Text: true}, {Head: "held out", Text: true}, {Head: "model", Text: true}, {Head: "networks"},
		{Head: "MAE"}, {Head: "RMSE"},
	}}
	for _, r := range f.Results {
		t.Rows = append(t.Rows, []string{r.Target, r.Split, r.Model, strconv.Itoa(r.Networks), fine(r.MAE), fine(r.RMSE)})
	}
	return t.Write(w)
}

// fine writes a spread with four decimals, for figures below 1.
func fine(s Spread) string { return fmt.Sprintf("%.4f ± %.4f", s.Mean, s.SD) }

// Go writes the shipped file of the predictor. The date is that of the fit, "" for none.
func (f *FeatureFit) Go(w io.Writer, date string) error {
	p := &f.Predictor
	var b strings.Builder
	b.WriteString("package interference\n\n// fittedPredictor is the predictor that is shipped.\n//\n")
	fmt.Fprintf(&b, "// Fitted%s on public measurements:\n//\n", on(date))
	fmt.Fprintf(&b, "//   - %d dense networks of GPUMemNet, github.com/itu-rad/GPUMemNet at f01eb05 (CC-BY-4.0 where it has a licence)\n", f.Networks)
	if f.Profiles > 0 {
		fmt.Fprintf(&b, "//   - the bandwidth of %d jobs of Lucid, github.com/S-Lab-System-Group/Lucid at 63685a3 (S-Lab License 1.0)\n", f.Profiles)
	}
	b.WriteString("//\n// This writes it:\n//\n//\tgo run ./evaluation fit features --features mlp_train_features_util.csv --profiles single_data.csv -o go\n//\n")
	b.WriteString("// Mean absolute errors on held-out fifths:\n//\n")
	for _, r := range f.Results {
		if r.Split == fifths {
			fmt.Fprintf(&b, "//\t%-10s  %-13s  %s\n", r.Target, r.Model, fine(r.MAE))
		}
	}
	b.WriteString("var fittedPredictor = Predictor{\n")
	fmt.Fprintf(&b, "\tSM: [UseTerms]float64{\n%s\t},\n", numbers(p.SM[:]))
	fmt.Fprintf(&b, "\tMemory:    [MemoryTerms]float64{%s},\n", list(p.Memory[:]))
	fmt.Fprintf(&b, "\tBandwidth: %v,\n", p.Bandwidth)
	fmt.Fprintf(&b, "\tRange: Range{\n\t\tLeast: %s,\n\t\tMost:  %s,\n\t},\n", features(p.Range.Least), features(p.Range.Most))
	fmt.Fprintf(&b, "\tSMError:        %v,\n\tBandwidthError: %v,\n", p.SMError, p.BandwidthError)
	fmt.Fprintf(&b, "\tMemoryError:    %v,\n\tWidening:       %v,\n}\n", p.MemoryError, p.Widening)
	_, err := io.WriteString(w, b.String())
	return err
}

// fifths is the split that the shipped file reports.
const fifths = "fifth"

func on(date string) string {
	if date == "" {
		return ""
	}
	return " on " + date
}

func features(f interference.Features) string {
	const form = "Features{Parameters: %.0f, Activations: %.0f, Batch: %.0f, Depth: %.0f}"
	return fmt.Sprintf(form, f.Parameters, f.Activations, f.Batch, f.Depth)
}

// numbers writes coefficients, six to a line.
func numbers(all []float64) string {
	var b strings.Builder
	for len(all) > 0 {
		n := min(6, len(all))
		b.WriteString("\t\t" + list(all[:n]) + ",\n")
		all = all[n:]
	}
	return b.String()
}

func list(all []float64) string {
	words := make([]string, len(all))
	for i, v := range all {
		words[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strings.Join(words, ", ")
}
