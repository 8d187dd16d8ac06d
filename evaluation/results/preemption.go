package results

import (
	"fmt"
	"io"
	"strconv"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Preemption is what policies of preemption made of the same jobs, a result per load and policy.
type Preemption struct {
	// Trace is the format of the jobs.
	Trace string `json:"trace"`
	Nodes int    `json:"nodes"`
	// Jobs of a run, and the number of jobs of the trace that no run has.
	Jobs    int                `json:"jobs"`
	LeftOut int                `json:"left_out"`
	Seeds   []int64            `json:"seeds"`
	Results []PreemptionResult `json:"results"`
}

// PreemptionResult is what one policy made of one load: figures of a run, with the deviation over the seeds, and counts over
// all seeds.
type PreemptionResult struct {
	Policy string  `json:"policy"`
	Load   float64 `json:"load"`
	// WaitP50 and WaitP99 are of jobs of a high priority, in seconds; WaitOthers is the mean of the others.
	WaitP50    Spread `json:"high_wait_p50_seconds"`
	WaitP99    Spread `json:"high_wait_p99_seconds"`
	WaitOthers Spread `json:"other_wait_mean_seconds"`
	// Preemptions of a run, Victims of a preemption, and Fallen: the pods of a run that went because others of their gang did.
	Preemptions Spread `json:"preemptions"`
	Victims     Spread `json:"victims_per_preemption"`
	Fallen      Spread `json:"fallen_pods"`
	// LostHours is the GPU time of work that was undone, LostRatio the part of what the in-tree plugin undoes with the same seed.
	LostHours Spread `json:"lost_gpu_hours"`
	LostRatio Spread `json:"lost_ratio"`
	// SameRatio compares with the in-tree plugin on the same cluster for the same jobs: the part of its undone work,
	// over the decisions in which it would evict.
	SameRatio Spread `json:"lost_ratio_same_decisions"`
	// LeastHours is the least GPU time that any victims would have lost, decision by decision, on the clusters as they
	// were; decisions whose search was cut count 0. LeastRatio is LostHours ÷ LeastHours.
	LeastHours Spread `json:"least_gpu_hours"`
	LeastRatio Spread `json:"lost_ratio_least"`
	// Violations of budgets, victims beyond what they allow.
	Violations Spread `json:"budget_violations"`
	// Void, Needless and Unlawful as in sim.Audit, Cut the preemptions whose search a bound ended, NeverPlaced the jobs that had
	// no place in the end.
	Void        int `json:"void_preemptions"`
	Needless    int `json:"needless_victims"`
	Unlawful    int `json:"unlawful_victims"`
	Cut         int `json:"cut_searches"`
	NeverPlaced int `json:"never_placed"`
}

// Table writes a row per result, and a line about the runs.
func (p Preemption) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "load"}, {Head: "policy", Text: true}, {Head: "high p50 s"}, {Head: "high p99 s"}, {Head: "others mean s"},
		{Head: "preemptions"}, {Head: "victims each"}, {Head: "fallen"}, {Head: "GPU-h lost"}, {Head: "÷ default"}, {Head: "same"}, {Head: "÷ least"}, {Head: "violations"},
		{Head: "void"}, {Head: "needless"}, {Head: "unlawful"}, {Head: "cut"}, {Head: "never placed"},
	}}
	brief := func(s Spread) string { return fmt.Sprintf("%.1f ± %.1f", s.Mean, s.SD) }
	for i := range p.Results {
		r := &p.Results[i]
		t.Rows = append(t.Rows, []string{
			strconv.FormatFloat(r.Load, 'g', -1, 64), r.Policy, brief(r.WaitP50), brief(r.WaitP99), brief(r.WaitOthers),
			brief(r.Preemptions), r.Victims.String(), brief(r.Fallen), brief(r.LostHours), r.LostRatio.String(), r.SameRatio.String(), r.LeastRatio.String(), brief(r.Violations),
			strconv.Itoa(r.Void), strconv.Itoa(r.Needless), strconv.Itoa(r.Unlawful), strconv.Itoa(r.Cut), strconv.Itoa(r.NeverPlaced),
		})
	}
	if err := t.Write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %d jobs a run on %d nodes, %d seeds, of which a deviation each; void, needless, unlawful, cut and never placed over all seeds; %d jobs of the trace left out\n",
		p.Trace, p.Jobs, p.Nodes, len(p.Seeds), p.LeftOut)
	return err
}
