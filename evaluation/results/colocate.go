package results

import (
	"fmt"
	"io"
	"strconv"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Colocation is what policies made of the same batches of jobs that may share GPUs, a result per policy.
type Colocation struct {
	// GPUs and Jobs of a batch; Configurations bounds the configurations of one batch.
	GPUs           int `json:"gpus"`
	Jobs           int `json:"jobs"`
	Configurations int `json:"configurations"`
	// Seeds of the batches, a run each.
	Seeds   []int64            `json:"seeds"`
	Results []ColocationResult `json:"results"`
}

// ColocationResult is what one policy made of the batches of all seeds. A ratio is that to the jobs one by one on GPUs of
// their own, in the batch of the same seed.
type ColocationResult struct {
	Policy string `json:"policy"`
	// MakespanRatio is of the time until the last job ended.
	MakespanRatio Spread `json:"makespan_ratio"`
	// UtilizationRatio is of the mean utilisation of the GPUs until then.
	UtilizationRatio Spread `json:"utilization_ratio"`
	// SlowdownMean is of the jobs of a batch, SlowdownMax that of its slowest: the time that a job ran ÷ the time alone.
	SlowdownMean Spread `json:"slowdown_mean"`
	SlowdownMax  Spread `json:"slowdown_max"`
	// SlowdownWorst is that of the slowest job of all batches.
	SlowdownWorst float64 `json:"slowdown_worst"`
	// OOM counts the starts for which the memory of the GPU did not suffice, in all batches.
	OOM int `json:"oom"`
}

// Table writes a row per result, and a line about the batches.
func (r Colocation) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "policy", Text: true},
		{Head: "makespan"},
		{Head: "utilization"},
		{Head: "mean slowdown"},
		{Head: "max slowdown"},
		{Head: "worst"},
		{Head: "oom"},
	}}
	for _, x := range r.Results {
		t.Rows = append(t.Rows, []string{
			x.Policy, spread3(x.MakespanRatio), spread3(x.UtilizationRatio), spread3(x.SlowdownMean), x.SlowdownMax.String(),
			strconv.FormatFloat(x.SlowdownWorst, 'f', 2, 64), strconv.Itoa(x.OOM),
		})
	}
	if err := t.Write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "makespan and utilization ÷ those of fifo; %d jobs of %d configurations on %d GPUs, %d seeds\n",
		r.Jobs, r.Configurations, r.GPUs, len(r.Seeds))
	return err
}

// spread3 writes "0.641 ± 0.122".
func spread3(s Spread) string { return fmt.Sprintf("%.3f ± %.3f", s.Mean, s.SD) }
