package results

import (
	"io"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Rates is what ways of choosing GPUs spent on the same jobs, of which each wants a rate: a result per list of prices,
// policy, way and number of jobs.
type Rates struct {
	Results []RateResult `json:"results"`
}

// RateResult is what one way of choosing spent on the first jobs of all seeds.
type RateResult struct {
	// Prices of a whole device and hour, by model: "k80=0.45,v100=2.48".
	Prices string `json:"prices"`
	Policy string `json:"policy"`
	Choice string `json:"choice"`
	// Seeds of the jobs, a run each.
	Seeds []int64 `json:"seeds"`
	// Jobs of the run, one after the other.
	Jobs int `json:"jobs"`
	// CostPerHour is the price of all allocated shares.
	CostPerHour Spread `json:"cost_per_hour"`
	// DeviceCostPerHour is the price of all devices with a share.
	DeviceCostPerHour Spread `json:"device_cost_per_hour"`
	// Met counts the jobs whose share reaches the rate, Missed those whose share does not, Unplaced those without a share.
	Met      Spread `json:"met"`
	Missed   Spread `json:"missed"`
	Unplaced Spread `json:"unplaced"`
}

// Table writes a row per result.
func (r Rates) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "prices", Text: true},
		{Head: "policy", Text: true},
		{Head: "choice", Text: true},
		{Head: "jobs"},
		{Head: "cost per hour"},
		{Head: "devices per hour"},
		{Head: "met"},
		{Head: "missed"},
		{Head: "unplaced"},
	}}
	for _, x := range r.Results {
		t.Rows = append(t.Rows, []string{
			strings.ReplaceAll(x.Prices, ",", " "), x.Policy, x.Choice, strconv.Itoa(x.Jobs), x.CostPerHour.String(),
			x.DeviceCostPerHour.String(), x.Met.String(), x.Missed.String(), x.Unplaced.String(),
		})
	}
	return t.Write(w)
}
