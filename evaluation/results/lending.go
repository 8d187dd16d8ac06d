package results

import (
	"fmt"
	"io"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Lending is what policies made of training jobs beside inference fleets.
type Lending struct {
	Setting
	Fleets        int     `json:"fleets"`
	PromiseMillis float64 `json:"promise_ms"`
	// Results are by load, then by policy.
	Results []LendingResult `json:"results"`
	// Spikes is how many of them were played with each policy of SpikeResults.
	Spikes       int           `json:"spikes"`
	SpikeResults []SpikeResult `json:"spike_results"`
}

// LendingResult is what one policy made of one load.
type LendingResult struct {
	Load   float64 `json:"load"`
	Policy string  `json:"policy"`
	// Trained and Served are GPU-hours at solo speed that were done in an hour, of jobs and of requests. Useful is their sum, and More by which
	// part it is more than that of the first policy.
	Trained Spread `json:"trained"`
	Served  Spread `json:"served"`
	Useful  Spread `json:"useful"`
	More    Spread `json:"more"`
	// GPUs is the mean number of GPUs that fleets had.
	GPUs  Spread `json:"gpus"`
	Ended Spread `json:"ended"`
	// Changes counts changes of size and later starts, Preempted what was evicted, and Lost the GPU-hours at solo speed that this cost.
	Changes   Spread `json:"changes"`
	Preempted Spread `json:"preempted"`
	Lost      Spread `json:"lost"`
	// Windows of a minute of all fleets and seeds, and Broken those whose p99 was above the promise.
	Windows  int `json:"windows"`
	Broken   int `json:"broken"`
	Requests int `json:"requests"`
	Late     int `json:"late"`
}

// SpikeResult is what one policy made of the spikes. Times are seconds since the begin of a spike.
type SpikeResult struct {
	Policy string `json:"policy"`
	// InTime counts the spikes in which the fleet had its GPUs before the promise broke, Kept those in which it did not break.
	// Asked counts those in which it wanted them before.
	InTime int `json:"in_time"`
	Asked  int `json:"asked"`
	Kept   int `json:"kept"`
	// Back is when the fleet had the GPUs that keep the promise at the height of the spike, Serving when as many replicas served.
	BackMedian float64 `json:"back_median"`
	BackWorst  float64 `json:"back_worst"`
	// Wait is from when they were wanted until the fleet had them.
	WaitP90       float64 `json:"wait_p90"`
	WaitWorst     float64 `json:"wait_worst"`
	ServingMedian float64 `json:"serving_median"`
	ServingWorst  float64 `json:"serving_worst"`
	Preempted     int     `json:"preempted"`
}

// Table writes a row per load and policy, and then one per policy with spikes.
func (r Lending) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "load"}, {Head: "policy", Text: true}, {Head: "trained"}, {Head: "served"}, {Head: "useful"}, {Head: "more"}, {Head: "fleets' GPUs"},
		{Head: "windows broken"}, {Head: "late"}, {Head: "ended"}, {Head: "changes"}, {Head: "evicted"}, {Head: "lost"},
	}}
	for i := range r.Results {
		x := &r.Results[i]
		t.Rows = append(t.Rows, []string{
			fmt.Sprintf("%g", x.Load), x.Policy, fmt.Sprintf("%.2f", x.Trained.Mean), fmt.Sprintf("%.2f", x.Served.Mean), fmt.Sprintf("%.2f", x.Useful.Mean), fmt.Sprintf("%+.1f %%", 100*x.More.Mean),
			fmt.Sprintf("%.2f", x.GPUs.Mean), fmt.Sprintf("%d of %d, %.3f %%", x.Broken, x.Windows, 100*float64(x.Broken)/float64(max(1, x.Windows))),
			fmt.Sprintf("%.4f %%", 100*float64(x.Late)/float64(max(1, x.Requests))), fmt.Sprintf("%.1f", x.Ended.Mean), fmt.Sprintf("%.1f", x.Changes.Mean),
			fmt.Sprintf("%.1f", x.Preempted.Mean), fmt.Sprintf("%.2f", x.Lost.Mean),
		})
	}
	if len(t.Rows) > 0 {
		if err := t.Write(w); err != nil || r.Spikes == 0 {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "%d spikes: seconds until the fleet has its GPUs, and until they serve\n", r.Spikes); err != nil {
		return err
	}
	s := report.Table{Columns: []report.Column{
		{Head: "policy", Text: true}, {Head: "GPUs in time"}, {Head: "asked in time"}, {Head: "promise kept"}, {Head: "back, median"}, {Head: "worst"},
		{Head: "waited, p90"}, {Head: "worst"}, {Head: "serve, median"}, {Head: "worst"},
		{Head: "evicted"},
	}}
	for i := range r.SpikeResults {
		x := &r.SpikeResults[i]
		s.Rows = append(s.Rows, []string{
			x.Policy, fmt.Sprint(x.InTime), fmt.Sprint(x.Asked), fmt.Sprint(x.Kept), fmt.Sprintf("%.0f", x.BackMedian), fmt.Sprintf("%.0f", x.BackWorst),
			fmt.Sprintf("%.0f", x.WaitP90), fmt.Sprintf("%.0f", x.WaitWorst),
			fmt.Sprintf("%.0f", x.ServingMedian), fmt.Sprintf("%.0f", x.ServingWorst), fmt.Sprint(x.Preempted),
		})
	}
	return s.Write(w)
}
