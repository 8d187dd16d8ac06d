package results

import (
	"fmt"
	"io"
	"strconv"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// CurveScores is how wrong the shipped curves are, by class of work.
type CurveScores struct {
	Results []CurveScore `json:"results"`
}

// CurveScore is how wrong the shipped curve of one class is. Errors are of the speed on a part of the SMs, as a part of that on
// all.
type CurveScore struct {
	Class string `json:"class"`
	// Points with measurements, and the number of Families of their models.
	Points   int `json:"points"`
	Families int `json:"families"`
	// Fixed and Error are those of interference.Curve; Error is the root of the mean square that the scheduler expects.
	Fixed float64 `json:"fixed"`
	Error float64 `json:"error"`
	// MAE is the mean absolute error, RMSE the root of the mean square.
	MAE  float64 `json:"mae"`
	RMSE float64 `json:"rmse"`
	// Proportional and Unaffected are the mean absolute errors of taking the speed to follow the SMs, and not to.
	Proportional float64 `json:"mae_proportional"`
	Unaffected   float64 `json:"mae_unaffected"`
	// Below is the part of the points that are more than 5 % slower than in proportion to the SMs.
	Below float64 `json:"below_proportional"`
}

// Table writes a row per class.
func (s *CurveScores) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "class", Text: true}, {Head: "points"}, {Head: "families"}, {Head: "fixed"}, {Head: "MAE"}, {Head: "RMSE"},
		{Head: "expected"}, {Head: "proportional"}, {Head: "unaffected"}, {Head: "below proportional"},
	}}
	for _, r := range s.Results {
		t.Rows = append(t.Rows, []string{
			r.Class, strconv.Itoa(r.Points), strconv.Itoa(r.Families), fmt.Sprintf("%.2f", r.Fixed), figure(r.MAE), figure(r.RMSE),
			figure(r.Error), figure(r.Proportional), figure(r.Unaffected), figure(r.Below),
		})
	}
	return t.Write(w)
}

// FeatureScores is how wrong the shipped predictor is on networks.
type FeatureScores struct {
	Results []FeatureScore `json:"results"`
}

// FeatureScore is how wrong the shipped predictor is in one respect.
type FeatureScore struct {
	// Target is the predicted quantity: "sm", a part from 0 to 1, or "memory_mib".
	Target string `json:"target"`
	// Range is "inside" for networks within the range of the predictor's fit, "outside" for others, whose profile the
	// scheduler takes for a guess.
	Range    string `json:"range"`
	Networks int    `json:"networks"`
	// MAE is the mean absolute error, RMSE the root of the mean square.
	MAE  float64 `json:"mae"`
	RMSE float64 `json:"rmse"`
	// Mean is the mean absolute error of predicting the mean of all networks of the file.
	Mean float64 `json:"mae_mean"`
}

// Table writes a row for each target, inside and outside of the range.
func (s *FeatureScores) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "target", Text: true}, {Head: "range", Text: true}, {Head: "networks"}, {Head: "MAE"}, {Head: "RMSE"}, {Head: "mean"},
	}}
	for _, r := range s.Results {
		t.Rows = append(t.Rows, []string{
			r.Target, r.Range, strconv.Itoa(r.Networks), fmt.Sprintf("%.4f", r.MAE), fmt.Sprintf("%.4f", r.RMSE), fmt.Sprintf("%.4f", r.Mean),
		})
	}
	return t.Write(w)
}
