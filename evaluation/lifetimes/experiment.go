package lifetimes

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
)

// Experiment compares predictions of the remaining time on traces.
type Experiment struct {
	Traces []*traces.Trace
	// From and To bound the jobs that are predicted, as parts of the trace in the order of starts: 0 ≤ From < To ≤ 1. A prediction knows
	// the jobs that ended before it.
	From, To float64
	// Boosting is the program that fits gradient boosting, and its arguments; none leaves that rival out.
	Boosting []string
	Config   lifetime.Config
}

// Row is what one way to predict reaches on one trace.
type Row struct {
	Trace       string `json:"trace"`
	Predictor   string `json:"predictor"`
	Predictions int    `json:"predictions"`
	// RelativeError is the median of |predicted median - remaining time| ÷ remaining time.
	RelativeError float64 `json:"medianRelativeError"`
	// Loss is the pinball loss in hours, the mean over the deciles and predictions; LogLoss is the same of the natural logarithms.
	Loss    float64 `json:"pinballHours"`
	LogLoss float64 `json:"pinballLogarithm"`
	// Covered is the part of the remaining times from the first decile to the last.
	Covered float64 `json:"covered"`
}

// Results are the rows of all traces.
type Results []Row

// Run predicts all moments of the jobs of each trace in each way.
func (e *Experiment) Run() (Results, error) {
	if !(e.From >= 0 && e.From < e.To && e.To <= 1) {
		return nil, fmt.Errorf("parts %v to %v, legal is 0 to 1, the first less than the second", e.From, e.To)
	}
	var all Results
	for _, t := range e.Traces {
		rows, err := e.trace(t)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", t, err)
		}
		all = append(all, rows...)
	}
	return all, nil
}

func (e *Experiment) trace(t *traces.Trace) (all Results, err error) {
	jobs := jobsOf(t)
	n := float64(len(jobs))
	moments := momentsOf(jobs[int(e.From*n):int(e.To*n)])
	if len(moments) == 0 || byEnd(jobs)[0].end() > moments[0].at() {
		return nil, fmt.Errorf("%d jobs that ended, want some before the first prediction and some after it", len(jobs))
	}
	for _, p := range e.predictors(jobs) {
		answers, err := p.answers(jobs, moments)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		row := score(moments, answers)
		row.Trace, row.Predictor = base(t), p.name
		all = append(all, row)
	}
	return all, nil
}

type named struct {
	name string
	predictor
}

func (e *Experiment) predictors(jobs []job) []named {
	all := []named{{"tandem", tandem{e.Config}}}
	median := "median of the user"
	if !slices.ContainsFunc(jobs, func(j job) bool { return j.pod.User != "" }) {
		median = "median of all"
	}
	all = append(all, named{median, rival{userMedian}}, named{"linear regression", rival{linear}})
	if len(e.Boosting) > 0 {
		all = append(all, named{"gradient boosting", rival{boosting{e.Boosting}.fit}})
	}
	return all
}

func score(moments []moment, answers []answer) (r Row) {
	r.Predictions = len(moments)
	errs := make([]float64, len(moments))
	for i, m := range moments {
		a, truth := answers[i], m.remaining()
		errs[i] = math.Abs(a[deciles/2]-truth) / truth
		for d, q := range a {
			p := float64(d+1) / 10
			r.Loss += pinball(p, q, truth) / 3600
			r.LogLoss += pinball(p, math.Log(max(q, 1)), math.Log(max(truth, 1)))
		}
		if a[0] <= truth && truth <= a[deciles-1] {
			r.Covered++
		}
	}
	slices.Sort(errs)
	n := float64(len(moments))
	r.RelativeError, r.Covered = errs[len(errs)/2], r.Covered/n
	r.Loss, r.LogLoss = r.Loss/n/deciles, r.LogLoss/n/deciles
	return r
}

// pinball is the loss of a quantile: p times what it is too little, or 1 - p times what it is too much.
func pinball(p, quantile, truth float64) float64 {
	if truth >= quantile {
		return p * (truth - quantile)
	}
	return (1 - p) * (quantile - truth)
}

// Table writes the results for people.
func (r Results) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "trace\tpredictor\tpredictions\trelative error\tpinball, hours\tpinball, logarithm\tcovered %")
	for _, row := range r {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.3f\t%.3f\t%.4f\t%.1f\n",
			row.Trace, row.Predictor, row.Predictions, row.RelativeError, row.Loss, row.LogLoss, 100*row.Covered)
	}
	return t.Flush()
}

func base(t *traces.Trace) string { return filepath.Base(t.File) }
