package experiment

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

// Predicting compares models that predict how fast two workloads run side by side with what was measured.
//
// With HoldOut each of the named families is held out by one fold: the fold fits a model to the pairs without the
// family and scores it on those with it. Without, the models keep their shipped coefficients, and the score covers all
// pairs; Shipped keeps these coefficients with HoldOut too. In both, the models first see so many co-runs of each
// workload of these pairs; the score leaves out such a pair for every model.
type Predicting struct {
	Sets []PairSet
	// HoldOut names families; each is in at least one of the sets. Nil for none.
	HoldOut []string
	// Observe lists how many co-runs of each workload the models see, and Observed of which workloads.
	Observe  []int
	Observed Observed
	// Models by name.
	Models []string
	// Shipped makes models keep their shipped coefficients with HoldOut too.
	Shipped bool
	// Seeds draw the co-runs that the models see. Without such co-runs Run uses the first only.
	Seeds []int64
	// MaxSlowdown is the promise by which pairs are admitted, from 1.
	MaxSlowdown float64
	// Several goroutines call Progress with the number of complete runs; it may be nil.
	Progress func(done, total int)

	// fit makes the models; nil for the shipped ones.
	fit fitting
}

// Observed selects the workloads whose co-runs models see.
type Observed string

const (
	// ObservedAll is every workload of the scored pairs. The zero value stands for it too.
	ObservedAll Observed = "all"
	// ObservedHeldOut is the workloads of the held-out family.
	ObservedHeldOut Observed = "held-out"
	// ObservedHistory is these, after all pairs without the family: what a cluster knows that meets a new family.
	ObservedHistory Observed = "history"
)

// ObservedKinds returns all of them.
func ObservedKinds() []Observed { return []Observed{ObservedAll, ObservedHeldOut, ObservedHistory} }

// predictedRun is one model, number of co-runs, seed and fold of a set, and what came of it.
type predictedRun struct {
	set   *PairSet
	fold  *fold
	model string
	shown int
	seed  int64
	whose Observed

	pairs []scored
	// known is the number of co-runs that the model saw of the workloads of the scored pairs, of each side.
	known int
}

// Run plays all of them. Its results are in the order of the sets, of the models, and of the numbers of co-runs.
func (p *Predicting) Run() (*results.Interference, error) {
	if p.Observed = cmp.Or(p.Observed, ObservedAll); !slices.Contains(ObservedKinds(), p.Observed) {
		return nil, fmt.Errorf("compare predictions: unknown co-runs %q, known are those of %v", p.Observed, ObservedKinds())
	}
	if len(p.Sets) == 0 || len(p.Observe) == 0 || len(p.Models) == 0 || len(p.Seeds) == 0 {
		return nil, fmt.Errorf("compare predictions: %d sets, %d numbers of co-runs, %d models, %d seeds: want at least one of each",
			len(p.Sets), len(p.Observe), len(p.Models), len(p.Seeds))
	}
	if p.fit == nil {
		p.fit = fitted
	}
	var runs []predictedRun
	for s := range p.Sets {
		folds := p.Sets[s].folds(p.HoldOut)
		for _, model := range p.Models {
			for _, shown := range p.Observe {
				runs = append(runs, p.runs(&p.Sets[s], folds, model, shown)...)
			}
		}
	}
	err := scenario.Each(len(runs), p.Progress, func(i int) error { return runs[i].play(p) })
	if err != nil {
		return nil, fmt.Errorf("compare predictions: %w", err)
	}
	return p.summed(runs), nil
}

// runs lists those of one row of the table.
func (p *Predicting) runs(set *PairSet, folds []fold, model string, shown int) []predictedRun {
	seeds := p.Seeds
	if shown == 0 {
		seeds = seeds[:1] // without random co-runs all seeds are alike
	}
	runs := make([]predictedRun, 0, len(seeds)*len(folds))
	for _, seed := range seeds {
		for f := range folds {
			runs = append(runs, predictedRun{set: set, fold: &folds[f], model: model, shown: shown, seed: seed, whose: p.Observed})
		}
	}
	return runs
}

// play fits the model, shows it its co-runs, and predicts the others.
func (r *predictedRun) play(p *Predicting) error {
	seen := r.fold.seen
	if p.Shipped {
		seen = nil
	}
	m, err := p.fit(r.model, r.set, seen)
	if err != nil {
		return fmt.Errorf("%s: fit %s%s: %w", r.set.Name(), r.model, r.fold.without(), err)
	}
	shown := r.fold.draw(r.shown, r.whose, r.seed)
	if err := m.observe(shown); err != nil {
		return fmt.Errorf("%s: show %s its co-runs: %w", r.set.Name(), r.model, err)
	}
	known := map[string]int{}
	for _, c := range shown {
		for _, name := range c.workloads("") {
			known[name]++
		}
	}
	for _, c := range r.fold.scored {
		if slices.Contains(shown, c) {
			continue
		}
		r.pairs = append(r.pairs, scored{measured: c.speeds(), predicted: m.predict(c)})
		r.known += known[c.Sides[0].Workload] + known[c.Sides[1].Workload]
	}
	return nil
}

// summed makes a row of each set, model and number of co-runs. The figures of a seed are those of all its folds
// together, and the row has their mean over the seeds.
func (p *Predicting) summed(runs []predictedRun) *results.Interference {
	out := &results.Interference{MaxSlowdown: p.MaxSlowdown}
	for s := range p.Sets {
		out.Pairs = append(out.Pairs, p.Sets[s].counted(len(p.Sets) > 1))
	}
	for len(runs) > 0 {
		first := &runs[0]
		n := slices.IndexFunc(runs, func(r predictedRun) bool {
			return r.set != first.set || r.model != first.model || r.shown != first.shown
		})
		if n < 0 {
			n = len(runs)
		}
		row := figures(runs[:n], 1/p.MaxSlowdown)
		row.Model, row.Observed = first.model, first.shown
		if len(p.Sets) > 1 {
			row.Layout, row.GPU = string(first.set.Layout), first.set.GPU
		}
		out.Results = append(out.Results, row)
		runs = runs[n:]
	}
	return out
}
