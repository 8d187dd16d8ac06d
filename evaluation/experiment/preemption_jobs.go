package experiment

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Priorities of the classes of service of openb, from the most to the least urgent, and of the jobs of other traces.
var classPriorities = map[string]int32{"Guaranteed": 3000, "LS": 2000, "Burstable": 1000, "BE": 0}

const (
	// openbHigh is the least priority of openb that counts as high: latency-sensitive pods.
	openbHigh = 2000
	// drawnHigh is the priority of jobs that the seed draws.
	drawnHigh = 1000
	// budgeted is the part of the jobs of a low priority that have budgets: one in five. budgetSize of them, in the
	// order of their arrival, share a budget that allows one missing pod.
	budgeted   = 5
	budgetSize = 10
)

// high returns the least priority that counts as high.
func (p *Preemption) high() int32 {
	if p.Trace.Format == traces.OpenbPodList {
		return openbHigh
	}
	return drawnHigh
}

// plenty of CPU and memory.
var plenty = vgpu.Room{MilliCPU: 1 << 40, Memory: 1 << 50}

// pool returns the jobs that take part, in the order of their arrival.
func (p *Preemption) pool() []traces.Job {
	all := slices.Clone(p.Trace.Jobs)
	slices.SortStableFunc(all, func(a, b traces.Job) int { return cmp.Compare(a.Arrive, b.Arrive) })
	return slices.DeleteFunc(all, func(j traces.Job) bool {
		return j.Devices == 0 || j.Duration == 0 || p.Hosts == nil && j.Workers*j.Devices > p.Nodes*p.GPUs
	})
}

// setup returns the run of a seed at a load, without its policy of preemption.
func (p *Preemption) setup(pool []traces.Job, load float64, seed int64) (*sim.Setup, error) {
	draw := rand.New(rand.NewPCG(uint64(seed), 7))
	nodes, err := p.nodes(draw)
	if err != nil {
		return nil, err
	}
	s := &sim.Setup{Nodes: nodes, Queue: sim.Skip, Seed: seed, Preemption: sim.PreemptionConfig{Grace: p.Grace, Compare: true}}
	if s.Policy, err = placement.ByName("tandem"); err != nil {
		return nil, err
	}
	window := p.window(pool, draw)
	p.stretch(window, float64(sim.Capacity(nodes)), load)
	var budget *sim.Budget
	shared := 0
	for i := range window {
		j := &window[i]
		priority := p.priority(j, draw)
		var own *sim.Budget
		if inBudget := draw.IntN(budgeted) == 0; inBudget && priority < p.high() {
			if shared++; shared%budgetSize == 1 {
				budget = &sim.Budget{Name: fmt.Sprintf("default/budget-%d", shared/budgetSize), MaxUnavailable: 1}
			}
			own = budget
		}
		jobs, err := p.pods(j, priority)
		if err != nil {
			return nil, err
		}
		for k := range jobs {
			jobs[k].Budget = own
			s.Jobs = append(s.Jobs, jobs[k])
		}
	}
	// Models, or as many GPUs, that no node of the sample has.
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j sim.Job) bool { return j.Gang == nil && sim.Explain(nodes, &j.Request) != nil })
	return s, nil
}

// window returns the jobs of a run: so many that follow each other, from one that the seed draws. A shorter trace
// starts again, an hour after its last arrival, as often as necessary.
func (p *Preemption) window(pool []traces.Job, draw *rand.Rand) []traces.Job {
	const pause = time.Hour
	period := pool[len(pool)-1].Arrive - pool[0].Arrive + pause
	starts := len(pool) // that the seed picks one of
	if p.Jobs <= len(pool) {
		starts = len(pool) - p.Jobs + 1
	}
	first := draw.IntN(starts)
	window := make([]traces.Job, p.Jobs)
	for i := range window {
		round := (first + i) / len(pool)
		window[i] = pool[(first+i)%len(pool)]
		window[i].Arrive += time.Duration(round) * period
		if round > 0 {
			window[i].Name = fmt.Sprintf("%s-%d", window[i].Name, round)
		}
	}
	return window
}

// nodes draws the nodes of a run.
func (p *Preemption) nodes(draw *rand.Rand) ([]*vgpu.Node, error) {
	hosts := make([]*vgpu.Node, 0, p.Nodes)
	if p.Hosts == nil {
		for i := range p.Nodes {
			h := traces.Host{Name: fmt.Sprintf("n%03d", i), Devices: p.GPUs, Model: "GPU", Room: plenty}
			n, err := h.Node(traces.SlotsPerDevice)
			if err != nil {
				return nil, err
			}
			hosts = append(hosts, n)
		}
		return hosts, nil
	}
	for _, i := range draw.Perm(len(p.Hosts.Hosts))[:p.Nodes] {
		n, err := p.Hosts.Hosts[i].Node(traces.SlotsPerDevice)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, n)
	}
	return hosts, nil
}

// stretch cuts durations, and moves arrivals: the first is at 0, and the requests of the jobs are load times the
// capacity while they arrive.
func (p *Preemption) stretch(window []traces.Job, capacity, load float64) {
	work, first := 0., window[0].Arrive
	span := (window[len(window)-1].Arrive - first).Seconds()
	for i := range window {
		window[i].Duration = min(window[i].Duration, p.Longest)
		work += float64(window[i].Total()) * window[i].Duration.Seconds()
	}
	factor := 0.
	if span > 0 {
		factor = work / (load * capacity * span)
	}
	for i := range window {
		at := (window[i].Arrive - first).Seconds() * factor
		window[i].Arrive = time.Duration(at*1000) * time.Millisecond
	}
}

// priority returns that of a job: by its class of service, else drawn.
func (p *Preemption) priority(j *traces.Job, draw *rand.Rand) int32 {
	drawn := int32(0)
	if draw.Float64() < p.High {
		drawn = drawnHigh
	}
	if p.Trace.Format == traces.OpenbPodList {
		return classPriorities[j.Class]
	}
	return drawn
}

// pods returns the pods of a job: one with all its GPUs where a node has as many, else a gang of pods that are alike.
func (p *Preemption) pods(j *traces.Job, priority int32) ([]sim.Job, error) {
	pod, count := *j, 1
	if j.Workers > 1 {
		count = (j.Workers + p.GPUs - 1) / p.GPUs
		for j.Workers%count != 0 {
			count++
		}
		pod.Workers, pod.Devices = 1, j.Workers/count
	}
	var own *sim.Gang
	if count > 1 {
		own = &sim.Gang{Name: "trace/" + j.Name}
	}
	jobs := make([]sim.Job, 0, count)
	for i := range count {
		name := j.Name
		if own != nil {
			name = fmt.Sprintf("%s/%d", j.Name, i)
		}
		r, err := pod.Request(vgpu.UID(name))
		if err != nil {
			return nil, err
		}
		r.Pod, r.Priority = "trace/"+name, priority
		jobs = append(jobs, sim.Job{Request: r, Arrive: j.Arrive, Duration: j.Duration, Gang: own, Checkpoint: p.Checkpoint})
	}
	return jobs, nil
}
