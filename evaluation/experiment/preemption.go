package experiment

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

// Bounds of Preemption. Above them a run takes minutes.
const (
	MaxPreemptionNodes = 5000
	MaxPreemptionLoad  = 10
	MaxPreemptionJobs  = 200000
)

// Preemption plays jobs of two priorities and more on a cluster that is too small for them. It compares policies of
// preemption: how long jobs of a high priority wait, and what the others lose.
type Preemption struct {
	// Trace has the jobs: of openb, of Philly, or of DLRM serving. Preemption leaves out jobs without GPUs, or of
	// unknown duration.
	Trace *measurements.File
	// Hosts are the nodes, of which Nodes are drawn by the seed. nil: Nodes with GPUs each, whose hosts have plenty of room.
	Hosts *measurements.File
	Nodes int
	GPUs  int
	// Jobs of a run: so many that follow each other in the trace, from one that the seed draws. A shorter trace starts
	// again, an hour after its last arrival, as often as necessary.
	Jobs int
	// Loads, above 0: Preemption stretches the arrivals until the requests of the jobs are so many times the compute of
	// the cluster while they arrive.
	Loads []float64
	// High is the part of the jobs of a high priority, drawn by the seed, where the trace has no priorities; 0 to 1.
	High float64
	// Longest cuts durations, above 0.
	Longest time.Duration
	// Grace is how long evicted pods stay. Checkpoint is how often jobs save their work, 0 for never.
	Grace, Checkpoint time.Duration
	// Prices are those of the policy tandem.
	Prices preemption.Prices
	// Policies of sim.PreemptionPolicies, and Seeds: at least one of each.
	Policies []string
	Seeds    []int64
	// Several goroutines call Progress with the number of complete runs; it may be nil.
	Progress func(done, total int)
}

// preempted is what came of one run.
type preempted struct {
	p50, p99, preemptions, perPreemption, lost, violations, fallen, evicted float64
	others, both, inTree, least                                             float64
	audit                                                                   sim.Audit
	cut                                                                     int
	left                                                                    int
}

// Run plays every policy with every load and seed, and the in-tree policy in any case, to compare with.
func (p *Preemption) Run() (*results.Preemption, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("run preemption: %w", err)
	}
	pool := p.pool()
	if len(pool) == 0 {
		return nil, fmt.Errorf("run preemption: %v: no job with GPUs and a duration fits %d nodes", p.Trace, p.Nodes)
	}
	base := sim.PreemptInTree.String()
	policies := slices.Concat([]string{base}, slices.DeleteFunc(slices.Clone(p.Policies), func(name string) bool { return name == base }))
	each := len(p.Loads) * len(p.Seeds)
	runs := make([]preempted, len(policies)*each)
	err := scenario.Each(len(runs), p.Progress, func(i int) error {
		policy, load, seed := policies[i/each], p.Loads[i%each/len(p.Seeds)], p.Seeds[i%len(p.Seeds)]
		var err error
		if runs[i], err = p.play(pool, policy, load, seed); err != nil {
			return fmt.Errorf("run preemption %s at load %g with seed %d: %w", policy, load, seed, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &results.Preemption{Trace: string(p.Trace.Format), Nodes: p.Nodes, Jobs: p.Jobs, LeftOut: len(p.Trace.Jobs) - len(pool), Seeds: p.Seeds}
	for l, load := range p.Loads {
		of := func(policy int) []preempted { return runs[policy*each+l*len(p.Seeds) : policy*each+(l+1)*len(p.Seeds)] }
		for _, name := range p.Policies {
			out.Results = append(out.Results, preemptionResult(name, load, of(slices.Index(policies, name)), of(0)))
		}
	}
	return out, nil
}

func (p *Preemption) validate() error {
	switch {
	case len(p.Policies) == 0 || len(p.Seeds) == 0 || len(p.Loads) == 0:
		return errors.New("no policy, no seed or no load")
	case !slices.Contains([]csvtable.Format{traces.OpenbPodList, traces.PhillyTrace, traces.DLRMTrace}, p.Trace.Format):
		return fmt.Errorf("%v: want %s, %s or %s", p.Trace, traces.OpenbPodList, traces.PhillyTrace, traces.DLRMTrace)
	case p.Hosts != nil && len(p.Hosts.Hosts) < p.Nodes:
		return fmt.Errorf("%v: want %d nodes", p.Hosts, p.Nodes)
	case p.Nodes < 1 || p.Nodes > MaxPreemptionNodes:
		return fmt.Errorf("%d nodes, legal is 1 to %d", p.Nodes, MaxPreemptionNodes)
	case p.GPUs < 1 || p.GPUs > traces.MaxDevices:
		return fmt.Errorf("%d GPUs of each node, legal is 1 to %d", p.GPUs, traces.MaxDevices)
	case p.Jobs < 1 || p.Jobs > MaxPreemptionJobs:
		return fmt.Errorf("%d jobs, legal is 1 to %d", p.Jobs, MaxPreemptionJobs)
	case !(p.High >= 0 && p.High <= 1):
		return fmt.Errorf("a part of %v of a high priority, legal is 0 to 1", p.High)
	case p.Longest < time.Second || p.Grace < 0 || p.Checkpoint < 0:
		return fmt.Errorf("at most %v of each job, %v of grace, checkpoints every %v: legal is 1s, 0s and 0s or more", p.Longest, p.Grace, p.Checkpoint)
	}
	for _, l := range p.Loads {
		if !(l > 0 && l <= MaxPreemptionLoad) {
			return fmt.Errorf("load %v, legal is above 0 to %d", l, MaxPreemptionLoad)
		}
	}
	for _, name := range p.Policies {
		if _, err := sim.PreemptionByName(name); err != nil {
			return err
		}
	}
	return nil
}

// play plays one run.
func (p *Preemption) play(pool []traces.Job, policy string, load float64, seed int64) (preempted, error) {
	setup, err := p.setup(pool, load, seed)
	if err != nil {
		return preempted{}, err
	}
	setup.Preemption.Prices = &p.Prices
	if setup.Preemption.Policy, err = sim.PreemptionByName(policy); err != nil {
		return preempted{}, err
	}
	h, err := sim.Run(*setup)
	if err != nil {
		return preempted{}, err
	}
	out := measurePreemption(setup, h, p.high())
	out.audit, err = h.Audit()
	return out, err
}

// measurePreemption sums a run up. High is the least priority that is a high one.
func measurePreemption(setup *sim.Setup, h *sim.History, high int32) preempted {
	var out preempted
	var urgent, others []time.Duration
	for _, u := range unitsOf(setup, h) {
		switch {
		case !u.state.Placed():
			out.left++
		case u.priority >= high:
			urgent = append(urgent, u.wait)
		default:
			others = append(others, u.wait)
		}
	}
	quantile := func(all []time.Duration, q float64) float64 {
		d, _ := sim.Quantile(all, q)
		return d.Seconds()
	}
	out.p50, out.p99 = quantile(urgent, .5), quantile(urgent, .99)
	mean, _ := sim.Mean(others)
	out.others = mean.Seconds()
	for i := range h.Preemptions {
		x := &h.Preemptions[i]
		if x.Victims() == 0 { // it waits for those that leave already
			continue
		}
		out.preemptions++
		out.evicted += float64(x.Victims())
		out.fallen += float64(len(x.Fallen))
		out.lost += float64(x.Lost) / 1000 / 3600
		if x.InTreeLost >= 0 {
			out.both += float64(x.Lost)
			out.inTree += float64(x.InTreeLost)
		}
		out.least += float64(x.LeastLost) / 1000 / 3600
		out.violations += float64(x.Violations)
		if x.Cut {
			out.cut++
		}
	}
	out.perPreemption = out.evicted / math.Max(1, out.preemptions)
	return out
}

// waiter is a pod, or a gang, with what became of it.
type waiter struct {
	priority int32
	state    sim.State
	wait     time.Duration
}

func unitsOf(setup *sim.Setup, h *sim.History) []waiter {
	all := make([]waiter, 0, len(h.Outcomes))
	for i := range h.Outcomes {
		if setup.Jobs[i].Gang == nil {
			o := &h.Outcomes[i]
			all = append(all, waiter{setup.Jobs[i].Request.Priority, o.State, o.Wait()})
		}
	}
	for i := range h.Gangs {
		g := &h.Gangs[i]
		all = append(all, waiter{setup.Jobs[g.Members[0]].Request.Priority, g.State, g.Wait()})
	}
	return all
}

// preemptionResult sums up the runs of a policy at one load. The base is those of the in-tree policy with the same seeds.
func preemptionResult(policy string, load float64, runs, base []preempted) results.PreemptionResult {
	out := results.PreemptionResult{Policy: policy, Load: load}
	of := func(figure func(i int) float64) results.Spread {
		perSeed := make([]float64, 0, len(runs))
		for i := range runs {
			perSeed = append(perSeed, figure(i))
		}
		return results.SpreadOf(perSeed)
	}
	out.WaitP50, out.WaitP99 = of(func(i int) float64 { return runs[i].p50 }), of(func(i int) float64 { return runs[i].p99 })
	out.WaitOthers = of(func(i int) float64 { return runs[i].others })
	out.Preemptions = of(func(i int) float64 { return runs[i].preemptions })
	out.Victims = of(func(i int) float64 { return runs[i].perPreemption })
	out.Fallen = of(func(i int) float64 { return runs[i].fallen })
	out.LostHours = of(func(i int) float64 { return runs[i].lost })
	out.LostRatio = of(func(i int) float64 { return runs[i].lost / math.Max(base[i].lost, 1e-9) })
	out.SameRatio = of(func(i int) float64 { return runs[i].both / math.Max(runs[i].inTree, 1) })
	out.LeastHours = of(func(i int) float64 { return runs[i].least })
	out.LeastRatio = of(func(i int) float64 { return runs[i].lost / math.Max(runs[i].least, 1e-9) })
	out.Violations = of(func(i int) float64 { return runs[i].violations })
	for i := range runs {
		a := &runs[i].audit
		out.Void, out.Needless, out.Unlawful = out.Void+a.Void, out.Needless+a.Needless, out.Unlawful+a.Unlawful
		out.Cut, out.NeverPlaced = out.Cut+runs[i].cut, out.NeverPlaced+runs[i].left
	}
	return out
}

// ParsePreemptionPolicies reads names of policies separated by commas, or All.
func ParsePreemptionPolicies(list string) ([]string, error) {
	if list == All {
		return sim.PreemptionPolicies(), nil
	}
	names := strings.Split(list, ",")
	all := make([]string, 0, len(names))
	for _, name := range names {
		if _, err := sim.PreemptionByName(name); err != nil {
			return nil, err
		}
		if slices.Contains(all, name) {
			return nil, fmt.Errorf("%s appears twice", name)
		}
		all = append(all, name)
	}
	return all, nil
}
