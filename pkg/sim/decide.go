package sim

import (
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// candidates is the running pods, as the preemption policies see them.
type candidates struct {
	preemption.Candidates
	nodes []*vgpu.Node // where evictions may help, by name
	// jobs of Candidates.Pods, and started when each got its place.
	jobs    []int
	started []int64
	groups  []*group // of Candidates.Gangs
}

// decision is who goes for whom.
type decision struct {
	Preemption
	places []vgpu.Assignment
	broken []*group // gangs that leave whole
}

// decide returns the victims for a job, or a gang; nil for none. The candidates are those below its rank.
func (e *engine) decide(job int, c *candidates) (*decision, error) {
	if e.setup.Preemption.Policy == PreemptInTree {
		return e.decideInTree(job, c)
	}
	cluster, want := e.question(job, c)
	plan, err := preemption.Victims(cluster, want, &c.Candidates, e.preemptionConfig())
	if err != nil || plan.Places == nil {
		return nil, err
	}
	if g := e.history.groupOf[job]; g != nil {
		plan.Places = g.ofAll(plan.Places)
	}
	d := &decision{places: plan.Places, Preemption: Preemption{Cut: plan.Stats.Cut}}
	for _, unit := range plan.Evict {
		d.Evicted = append(d.Evicted, c.jobsOf(unit.Pods))
		if unit.Kind == preemption.Whole {
			d.broken = append(d.broken, c.groups[c.Pods[unit.Pods[0]].Gang])
		}
	}
	d.Waits = c.jobsOf(plan.Waits)
	return d, nil
}

// question returns what package preemption is asked for a job, or its gang.
func (e *engine) question(job int, c *candidates) (*gang.Cluster, *gang.Group) {
	if g := e.history.groupOf[job]; g != nil {
		return g.on(e.cluster), e.wanted(g)
	}
	r := e.request(job)
	return &gang.Cluster{Nodes: c.nodes}, &gang.Group{Name: r.Pod, MinCount: 1, Members: []gang.Member{{Request: r}}}
}

func (e *engine) preemptionConfig() preemption.Config {
	p := &e.setup.Preemption
	cfg := preemption.Config{
		Config: e.gangConfig(true), KeepBudgets: p.KeepBudgets, MaxSteps: p.MaxSteps, Prices: preemption.DefaultPrices(), SkipExplanation: true,
	}
	if p.Prices != nil {
		cfg.Prices = *p.Prices
	}
	return cfg
}

// leastLost returns the least work that any victims for a job lose, 0 where the search for them is cut, and where
// nobody compares.
func (e *engine) leastLost(job int, c *candidates) (int64, error) {
	if !e.setup.Preemption.Compare {
		return 0, nil
	}
	cluster, want := e.question(job, c)
	cfg := e.preemptionConfig()
	cfg.Prices, cfg.KeepBudgets = preemption.Prices{}, false
	who := c.Candidates
	who.Pods = slices.Clone(c.Pods)
	for i := range who.Pods {
		who.Pods[i].NeverPreempts = true
	}
	plan, err := preemption.Victims(cluster, want, &who, cfg)
	if err != nil || plan.Places == nil || plan.Stats.Cut {
		return 0, err
	}
	return plan.Cost.Lost, nil
}

func (c *candidates) jobsOf(pods []int) []int {
	jobs := make([]int, 0, len(pods))
	for _, i := range pods {
		jobs = append(jobs, c.jobs[i])
	}
	return jobs
}

// mayHelp returns the nodes on which evictions may help a job. Their help on one node depends on that node alone. So
// after evictions helped a single pod nowhere, only nodes that changed since can help others of its kind.
func (e *engine) mayHelp(job int) []*vgpu.Node {
	nodes := e.cluster.Nodes()
	since, tried := e.helpless[e.kinds[job]]
	if !tried || e.history.groupOf[job] != nil {
		return nodes
	}
	var changed []*vgpu.Node
	for i, n := range nodes {
		if e.lastly[i] > since {
			changed = append(changed, n)
		}
	}
	return changed
}

// candidates returns the pods that have places on some nodes now, and gangs with members there and elsewhere. The initial
// pods are no part of it, and neither are single pods that stay since they are of no lower priority.
func (e *engine) candidates(below int32, nodes []*vgpu.Node) *candidates {
	c, all := &candidates{nodes: nodes}, len(nodes) == len(e.cluster.Nodes())
	on := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		on[n.Name()] = true
	}
	gangs, budgets, missing := map[*group]int{}, map[*Budget]int{}, e.missing()
	for _, job := range e.live {
		o, j := &e.history.Outcomes[job], &e.setup.Jobs[job]
		if j.Gang == nil && (j.Request.Priority >= below && !e.leaving[job] || !all && !on[o.Assignment.Node]) {
			continue
		}
		p := preemption.Pod{
			UID: o.UID, Name: o.Pod, Node: o.Assignment.Node, Host: j.Request.Host, Priority: j.Request.Priority,
			Lost: e.wouldLose(job) + e.lead(job), Share: o.Allocated, Leaving: e.goes(job, below), Gang: -1,
		}
		if g := e.history.groupOf[job]; g != nil {
			if _, known := gangs[g]; !known {
				gangs[g] = len(c.Gangs)
				c.Gangs, c.groups = append(c.Gangs, preemption.Gang{Name: g.gang.Name, MinCount: g.want.MinCount}), append(c.groups, g)
			}
			p.Gang = gangs[g]
		}
		if b := j.Budget; b != nil {
			if _, known := budgets[b]; !known {
				budgets[b] = len(c.Budgets)
				c.Budgets = append(c.Budgets, preemption.Budget{Name: b.Name, Allowed: max(0, b.MaxUnavailable-missing[b])})
			}
			p.Budgets = []int{budgets[b]}
		}
		c.Pods, c.jobs, c.started = append(c.Pods, p), append(c.jobs, job), append(c.started, int64(o.Started))
	}
	return c
}

// missing counts the pods of each budget that wait or leave.
func (e *engine) missing() map[*Budget]int {
	count := map[*Budget]int{}
	for _, first := range e.waiting {
		for _, job := range e.unit(first) {
			if b := e.setup.Jobs[job].Budget; b != nil {
				count[b]++
			}
		}
	}
	for job := range e.leaving {
		if b := e.setup.Jobs[job].Budget; b != nil {
			count[b]++
		}
	}
	return count
}

// worked returns the work of a placed job that counts, as time on its devices: what it kept, and what it did since.
func (e *engine) worked(job int) time.Duration {
	return e.kept[job] + e.sample.At - e.history.Outcomes[job].Started
}

// saved returns the rest of a job's work after an eviction now.
func (e *engine) saved(job int) time.Duration {
	if every := e.setup.Jobs[job].Checkpoint; every > 0 {
		return e.worked(job) / every * every
	}
	return 0
}

// wouldLose returns the work that an eviction of a job now undoes, in thousandths of a GPU times seconds.
//
// A member of an elastic gang counts the time since the last checkpoint of its gang, at the present speed.
func (e *engine) wouldLose(job int) int64 {
	undone := e.worked(job) - e.saved(job)
	if s := e.sizingOf(job); s != nil {
		undone = min(e.sample.At-e.history.Outcomes[job].Started, s.undone(&e.setup.Jobs[job], e.sample.At))
	}
	return int64(e.history.Outcomes[job].Allocated) * int64(undone/time.Millisecond) / 1000
}
