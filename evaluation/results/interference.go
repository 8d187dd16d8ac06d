package results

import (
	"io"
	"strconv"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Interference is the quality of the models' predictions for the speeds of workloads that share a device. There is a
// result per set of pairs, model and number of co-runs that the model had seen of each workload.
type Interference struct {
	// MaxSlowdown is the promise by which pairs are admitted.
	MaxSlowdown float64              `json:"max_slowdown"`
	Results     []InterferenceResult `json:"results"`
	// Pairs counts what the sets have, in the order of the results.
	Pairs []InterferencePairs `json:"pairs"`
}

// InterferenceResult is one model on one set. An undefined figure is nil: all of them without a pair to score, the
// precision without an admitted pair, the recall without a pair to admit.
type InterferenceResult struct {
	// Layout and GPU say which set, where there are several.
	Layout string `json:"layout,omitempty"`
	GPU    string `json:"gpu,omitempty"`
	Model  string `json:"model"`
	// Observed is the number of random co-runs of each workload that the model saw.
	Observed int `json:"observed"`
	// Pairs in the score, on average over the seeds. A pair of two held-out families counts for each.
	Pairs int `json:"pairs"`
	// Shown is how many co-runs of a workload the model saw, on average over the sides of the scored pairs. The number
	// is larger than Observed, since a pair that one workload draws is a co-run of its partner too.
	Shown *float64 `json:"shown_mean"`
	// Seeds is over how many draws of co-runs the figures are means.
	Seeds int `json:"seeds"`
	// MAE is the mean absolute error of the speed (together ÷ alone), MAESD its deviation over the seeds.
	MAE   *float64 `json:"mae"`
	MAESD *float64 `json:"mae_sd"`
	// R2 is the part of the variance of the speeds that the model explains: 0 for a model that always says their mean.
	R2 *float64 `json:"r2"`
	// Precision is which part of the pairs that the model admits keep the promise, Recall which part of those that keep it
	// the model admits.
	Precision *float64 `json:"precision"`
	Recall    *float64 `json:"recall"`
}

// InterferencePairs counts the pairs of a set.
type InterferencePairs struct {
	Layout string `json:"layout,omitempty"`
	GPU    string `json:"gpu,omitempty"`
	// Measured pairs are in the score. The others are not: NoFit do not fit in the memory of the device, Dropped are of
	// a family with wrong measurements, OtherSets are of another measurement in the same file.
	Measured  int `json:"measured"`
	NoFit     int `json:"no_fit"`
	Dropped   int `json:"dropped"`
	OtherSets int `json:"other_sets"`
}

// Table writes a row per result, and a line for each set about the missing pairs.
func (r Interference) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "model", Text: true},
		{Head: "observed"},
		{Head: "shown"},
		{Head: "pairs"},
		{Head: "MAE"},
		{Head: "± seeds"},
		{Head: "R²"},
		{Head: "precision"},
		{Head: "recall"},
	}}
	several := len(r.Pairs) > 1
	if several {
		t.Columns = append([]report.Column{{Head: "pairs of", Text: true}, {Head: "GPU", Text: true}}, t.Columns...)
	}
	for _, x := range r.Results {
		row := []string{
			x.Model, strconv.Itoa(x.Observed), one(x.Shown), strconv.Itoa(x.Pairs), three(x.MAE), three(x.MAESD), three(x.R2),
			three(x.Precision), three(x.Recall),
		}
		if several {
			row = append([]string{x.Layout, x.GPU}, row...)
		}
		t.Rows = append(t.Rows, row)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	for _, p := range r.Pairs {
		if err := p.line(w); err != nil {
			return err
		}
	}
	return nil
}

// line says how many pairs there are, and how many are missing for which reason.
func (p InterferencePairs) line(w io.Writer) error {
	text := "\n"
	if p.GPU != "" {
		text += p.Layout + " on " + p.GPU + ": "
	}
	text += strconv.Itoa(p.Measured) + " pairs"
	for _, reason := range []struct {
		n     int
		words string
	}{
		{p.NoFit, "do not fit in memory"}, {p.Dropped, "left out: their solo speed is wrong"},
		{p.OtherSets, "of other measurements"},
	} {
		if reason.n > 0 {
			text += ", " + strconv.Itoa(reason.n) + " more " + reason.words
		}
	}
	_, err := io.WriteString(w, text+"\n")
	return err
}

// one writes one decimal, "–" for an undefined figure.
func one(figure *float64) string {
	if figure == nil {
		return "–"
	}
	return strconv.FormatFloat(*figure, 'f', 1, 64)
}

// three writes three decimals, "–" for an undefined figure.
func three(figure *float64) string {
	if figure == nil {
		return "–"
	}
	return strconv.FormatFloat(*figure, 'f', 3, 64)
}
