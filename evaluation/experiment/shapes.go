package experiment

import (
	"errors"
	"fmt"

	"github.com/tandem-gpu/tandem/evaluation/bound"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/evaluation/shapes"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Shapes plays the policies on clusters and workloads that none of them was tuned for. The usual requests are learned
// from the pods that arrive.
type Shapes struct {
	// Numbers of the shapes, Policies by name, and Seeds: at least one of each.
	Numbers  []int
	Policies []string
	Seeds    []int64
	// Several goroutines call Progress with the number of complete runs; it may be nil.
	Progress func(done, total int)
}

// Regrets that count as none: percentage points of fills, percent of the job completion time of flows.
const (
	nearFill = .1
	nearFlow = 1
)

// Run plays every policy on every shape with every seed, as many at once as Go uses processors.
func (x *Shapes) Run() (*results.Shapes, error) {
	if len(x.Numbers) == 0 || len(x.Policies) == 0 || len(x.Seeds) == 0 {
		return nil, errors.New("play shapes: no shape, policy or seed")
	}
	perShape := len(x.Policies) * len(x.Seeds)
	figures := make([]float64, len(x.Numbers)*perShape)
	err := scenario.Each(len(figures), x.Progress, func(i int) error {
		number, policy, seed := x.Numbers[i/perShape], x.Policies[i%perShape/len(x.Seeds)], x.Seeds[i%len(x.Seeds)]
		var err error
		if figures[i], err = playShape(number, policy, seed); err != nil {
			return fmt.Errorf("play shape %d by policy %s with seed %d: %w", number, policy, seed, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &results.Shapes{Seeds: x.Seeds}
	for i, number := range x.Numbers {
		means := x.meansOf(number, figures[i*perShape:(i+1)*perShape])
		if err := x.bound(&means); err != nil {
			return nil, fmt.Errorf("bound shape %d: %w", number, err)
		}
		out.Shapes = append(out.Shapes, means)
	}
	for _, policy := range x.Policies {
		out.Results = append(out.Results, regretOf(policy, out.Shapes))
	}
	return out, nil
}

// playShape returns the percentage of the GPUs that are allocated in the end, or the mean job completion time in seconds.
func playShape(number int, policy string, seed int64) (float64, error) {
	s := shapes.Of(number)
	setup, err := s.Setup(seed)
	if err != nil {
		return 0, err
	}
	if setup.Policy, err = placement.ByName(policy); err != nil {
		return 0, err
	}
	h, err := sim.Run(setup)
	if err != nil {
		return 0, err
	}
	if s.Fills {
		allocated, devices := 0., 0.
		for i := range h.Outcomes {
			if o := &h.Outcomes[i]; o.State.Placed() {
				allocated += float64(o.Allocated)
			}
		}
		for _, n := range setup.Nodes {
			devices += float64(len(n.Devices()))
		}
		return allocated / devices / 10, nil
	}
	times := h.JCTs()
	if len(times) < len(setup.Jobs) {
		return 0, fmt.Errorf("%d of %d jobs never end", len(setup.Jobs)-len(times), len(setup.Jobs))
	}
	mean, _ := sim.Mean(times)
	return mean.Seconds(), nil
}

// meansOf returns the means of a shape over the seeds, from the figures by policy and seed.
func (x *Shapes) meansOf(number int, figures []float64) results.ShapeFigures {
	s := shapes.Of(number)
	out, means := results.ShapeFigures{Number: number, Family: s.Family}, make(map[string]float64, len(x.Policies))
	for p, policy := range x.Policies {
		sum := 0.
		for _, f := range figures[p*len(x.Seeds) : (p+1)*len(x.Seeds)] {
			sum += f
		}
		means[policy] = report.Round(sum / float64(len(x.Seeds)))
	}
	if s.Fills {
		out.Allocated = means
	} else {
		out.JCT = means
	}
	return out
}

// bound computes what no policy can exceed on a fill, in the mean over the seeds.
func (x *Shapes) bound(out *results.ShapeFigures) error {
	if out.Allocated == nil {
		return nil
	}
	s := shapes.Of(out.Number)
	for _, seed := range x.Seeds {
		setup, err := s.Setup(seed)
		if err != nil {
			return err
		}
		pods := make([]vgpu.Request, len(setup.Jobs))
		for i := range pods {
			pods[i] = setup.Jobs[i].Request
		}
		b, err := bound.Fill(setup.Nodes, pods)
		if err != nil {
			return err
		}
		out.AtMost += b.Most / float64(len(x.Seeds))
		out.Gap += b.Gap / float64(len(x.Seeds))
	}
	out.AtMost, out.Gap = report.Round(out.AtMost), report.Round(out.Gap)
	return nil
}

// regretOf sums up what a policy lost against the best of each shape.
func regretOf(policy string, all []results.ShapeFigures) results.ShapeRegret {
	out := results.ShapeRegret{Policy: policy}
	var fills, flows regrets
	for i := range all {
		s := &all[i]
		if s.Allocated != nil {
			best := 0.
			for _, a := range s.Allocated {
				best = max(best, a)
			}
			fills.add(s.Number, best-s.Allocated[policy], nearFill)
			continue
		}
		best := s.JCT[policy]
		for _, t := range s.JCT {
			best = min(best, t)
		}
		flows.add(s.Number, 100*(s.JCT[policy]-best)/best, nearFlow)
	}
	out.Fills, out.Flows = fills.sum(), flows.sum()
	return out
}

// regrets adds up the regrets of a policy.
type regrets struct {
	results.Regret
	shapes, near int
}

func (r *regrets) add(number int, regret, near float64) {
	if r.shapes == 0 || regret > r.Worst {
		r.Worst, r.WorstShape = regret, number
	}
	r.shapes++
	r.Mean += regret
	if regret <= near {
		r.near++
	}
}

// sum returns the regret over all shapes, nil for none.
func (r *regrets) sum() *results.Regret {
	if r.shapes == 0 {
		return nil
	}
	n := float64(r.shapes)
	return &results.Regret{
		Mean: report.Round(r.Mean / n), Worst: report.Round(r.Worst), WorstShape: r.WorstShape, NearPercent: report.Round(100 * float64(r.near) / n),
	}
}
