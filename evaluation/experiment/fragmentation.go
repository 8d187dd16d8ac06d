package experiment

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/bound"
	"github.com/tandem-gpu/tandem/evaluation/plots"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Loads, in percent of all GPUs, at which a run reports results, beside its end.
var (
	allocatedLoads  = []int{80, 100, 130}
	fragmentedLoads = []int{80}
)

// Filling fills a cluster with pods that never end, as Weng et al. do. Pods arrive in an order drawn from a seed, again
// and again until their requests reach Inflate times all GPUs. The run drops a pod that fits nowhere.
// Among equally good nodes a pod takes the first of a random order.
type Filling struct {
	Nodes []traces.Host
	Pods  []traces.Job
	// Policies by name, and Seeds: at least one of each.
	Policies []string
	Seeds    []int64
	// Inflate is the sum of the pods' requests, as a multiple of all GPUs; at least MinInflate, at most MaxInflate.
	Inflate float64
	// Bound says that Run also computes what any policy could allocate at most, for each seed.
	Bound bool
	// Now is the clock that runs are timed by; nil reports no times.
	Now func() time.Time
	// Several goroutines call Progress with the number of complete runs; it may be nil.
	Progress func(done, total int)
}

// Bounds of Filling.Inflate. Below them there is nothing to see, above them a run takes hours.
const (
	MinInflate = .01
	MaxInflate = 10
)

// Filled is what came of a Filling.
type Filled struct {
	results.Fragmentation
	allocated, fragmented []plots.Series
}

// filled is the result of one run: percentages of all GPUs by the requested percentage. The order ends just below the
// last percentage, in a small cluster by several; the end of the run stands for what is missing.
type filled struct {
	allocated, fragmented curve
	seconds               float64
}

// Run plays every policy with every seed, as many at once as Go uses processors.
func (f *Filling) Run() (*Filled, error) {
	if len(f.Policies) == 0 || len(f.Seeds) == 0 {
		return nil, errors.New("fill cluster: no policy or no seed")
	}
	if !(f.Inflate >= MinInflate && f.Inflate <= MaxInflate) { // also when it is not a number
		return nil, fmt.Errorf("fill cluster: inflate by %v, legal is %v to %v", f.Inflate, MinInflate, MaxInflate)
	}
	runs := make([]filled, len(f.Policies)*len(f.Seeds))
	var bounds []bound.Bound
	if f.Bound {
		bounds = make([]bound.Bound, len(f.Seeds))
	}
	err := scenario.Each(len(bounds)+len(runs), f.Progress, func(i int) error {
		if i < len(bounds) {
			var err error
			bounds[i], err = f.bound(f.Seeds[i])
			return err
		}
		i -= len(bounds)
		policy, seed := f.Policies[i/len(f.Seeds)], f.Seeds[i%len(f.Seeds)]
		var err error
		if runs[i], err = f.fill(policy, seed); err != nil {
			return fmt.Errorf("fill cluster by policy %s with seed %d: %w", policy, seed, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &Filled{}
	for p, policy := range f.Policies {
		out.add(f, policy, runs[p*len(f.Seeds):(p+1)*len(f.Seeds)])
	}
	out.addBounds(bounds)
	return out, nil
}

// usual returns the requests of all pods of a list, each as often as it stands there, however often the order repeats it.
func usual(pods []traces.Job) (*fragmentation.Mix, error) {
	kinds := make([]fragmentation.Kind, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		kinds = append(kinds, fragmentation.Kind{
			MilliCPU: p.Host.MilliCPU, Memory: p.Host.Memory, Slots: vgpu.Slots(p.Devices) * vgpu.Slots(p.Compute),
			Models: strings.Join(p.Models, "|"), Weight: 1,
		})
	}
	return fragmentation.NewMix(kinds)
}

// fill plays one run.
func (f *Filling) fill(policy string, seed int64) (filled, error) {
	var began time.Time
	if f.Now != nil {
		began = f.Now()
	}
	setup, err := f.Setup(seed)
	if err != nil {
		return filled{}, err
	}
	if setup.Policy, err = placement.ByName(policy); err != nil {
		return filled{}, err
	}
	h, err := sim.Run(setup)
	if err != nil {
		return filled{}, err
	}
	out := filled{
		allocated:  sample(f.top()+1, func(percent int) (float64, bool) { return h.AllocatedAt(float64(percent)) }),
		fragmented: sample(f.top()+1, func(percent int) (float64, bool) { return h.FragmentationAt(float64(percent)) }),
	}
	if f.Now != nil {
		out.seconds = f.Now().Sub(began).Seconds()
	}
	return out, nil
}

// bound returns the bound of a seed: all policies meet the pods that arrive with it.
func (f *Filling) bound(seed int64) (bound.Bound, error) {
	setup, err := f.Setup(seed)
	if err != nil {
		return bound.Bound{}, fmt.Errorf("bound fill with seed %d: %w", seed, err)
	}
	pods := make([]vgpu.Request, 0, len(setup.Jobs))
	for i := range setup.Jobs {
		pods = append(pods, setup.Jobs[i].Request)
	}
	b, err := bound.Fill(setup.Nodes, pods)
	if err != nil {
		return bound.Bound{}, fmt.Errorf("seed %d: %w", seed, err)
	}
	return b, nil
}

// top is the sum of the requests of a run, in percent of all GPUs.
func (f *Filling) top() int { return int(math.Round(100 * f.Inflate)) }

// Setup returns the setup of a seed, without the policy: the nodes, the order of the pods and the usual requests. Names
// of nodes begin with their rank, since ties go to the first by name.
func (f *Filling) Setup(seed int64) (sim.Setup, error) {
	devices := int64(0)
	for i := range f.Nodes {
		devices += int64(f.Nodes[i].Devices)
	}
	order, rank, err := traces.Arrivals(f.Pods, len(f.Nodes), devices*int64(vgpu.WholeGPU), seed, f.Inflate)
	if err != nil {
		return sim.Setup{}, err
	}
	s := sim.Setup{Seed: seed, Queue: sim.Drop}
	if s.Mix, err = usual(f.Pods); err != nil {
		return sim.Setup{}, err
	}
	for i, host := range slices.SortedFunc(slices.Values(f.Nodes), func(a, b traces.Host) int { return strings.Compare(a.Name, b.Name) }) {
		host.Name = fmt.Sprintf("%06d-%s", rank[i], host.Name)
		n, err := host.Node(traces.SlotsPerDevice)
		if err != nil {
			return sim.Setup{}, err
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range order {
		r, err := order[i].Request(vgpu.UID(order[i].Name))
		if err != nil {
			return sim.Setup{}, err
		}
		s.Jobs = append(s.Jobs, sim.Job{Request: r})
	}
	return s, nil
}

// add sums the runs of a policy up.
func (out *Filled) add(f *Filling, policy string, runs []filled) {
	allocated, fragmented := make([]curve, 0, len(runs)), make([]curve, 0, len(runs))
	seconds := 0.0
	for _, r := range runs {
		allocated, fragmented = append(allocated, r.allocated), append(fragmented, r.fragmented)
		seconds += r.seconds / float64(len(runs))
	}
	result := results.PolicyResult{
		Policy: policy, Seeds: f.Seeds,
		AllocatedPercent: byLoad(allocated, loads(allocatedLoads, f.top())), FragmentationPercent: byLoad(fragmented, fragmentedLoads),
	}
	if f.Now != nil {
		seconds = report.Round(seconds)
		result.SecondsPerRun = &seconds
	}
	out.Results = append(out.Results, result)
	out.allocated = append(out.allocated, plots.Series{Name: policy, Points: mean(allocated, 1)})
	out.fragmented = append(out.fragmented, plots.Series{Name: policy, Points: mean(fragmented, 1)})
}

// addBounds sums the bounds of the seeds up.
func (out *Filled) addBounds(bounds []bound.Bound) {
	if len(bounds) == 0 {
		return
	}
	spread := func(of func(b bound.Bound) float64) results.Spread {
		figures := make([]float64, 0, len(bounds))
		for _, b := range bounds {
			figures = append(figures, of(b))
		}
		return results.SpreadOf(figures)
	}
	out.Bound = &results.Bound{
		Most:     spread(func(b bound.Bound) float64 { return b.Most }),
		Feasible: spread(func(b bound.Bound) float64 { return b.Feasible }),
		Gap:      spread(func(b bound.Bound) float64 { return b.Gap }),
		Cut:      slices.ContainsFunc(bounds, func(b bound.Bound) bool { return b.Cut }),
	}
}

// loads returns the loads up to a last one, which is among them.
func loads(all []int, last int) []int {
	below := slices.DeleteFunc(slices.Clone(all), func(l int) bool { return l >= last })
	return append(below, last)
}

// byLoad sums curves up at those loads that they reach.
func byLoad(runs []curve, loads []int) results.ByLoad {
	all := results.ByLoad{}
	for _, l := range loads {
		if l >= len(runs[0]) {
			continue
		}
		figures := make([]float64, 0, len(runs))
		for _, c := range runs {
			figures = append(figures, c[l])
		}
		all = append(all, results.AtLoad{Load: l, Spread: results.SpreadOf(figures)})
	}
	return all
}

// Figures draws the means over the seeds, a line per policy.
func (out *Filled) Figures() []plots.Figure {
	return []plots.Figure{plots.Allocation(out.allocated), plots.Fragmentation(out.fragmented)}
}
