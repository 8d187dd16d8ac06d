package sim

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// tryGroup places a gang, and reports whether it started.
func (e *engine) tryGroup(g *group) (bool, error) {
	o := &e.history.Gangs[g.number]
	o.Attempts++
	plan, err := e.plan(g)
	if err != nil {
		return false, err
	}
	if plan.Places == nil {
		if g.short == never {
			g.short, g.due = e.sample.At, e.after(e.setup.Gangs.DrainAfter)
		}
		e.lookAtDrain(g)
		return false, nil
	}
	return true, e.begin(g.jobs[0], plan.Places)
}

// beginGroup starts a gang at its places.
func (e *engine) beginGroup(g *group, places []vgpu.Assignment) error {
	o := &e.history.Gangs[g.number]
	e.release(g)
	nodes := make([]int, 0, len(g.jobs))
	for i, job := range g.jobs {
		if places[i].Node == "" {
			e.leaveOut(job)
			continue
		}
		if err := e.start(job, places[i]); err != nil {
			return fmt.Errorf("place gang %s: %w", g.gang.Name, err)
		}
		nodes = append(nodes, e.places[e.cluster.Node(places[i].Node)])
	}
	o.State, o.Started, o.Spread = Running, e.sample.At, spread(e.history.levels, nodes)
	o.Waited += e.sample.At - g.since
	if duration := e.setup.Jobs[g.jobs[0]].Duration; duration > 0 {
		o.Ended = o.Started + duration - e.kept[g.jobs[0]]
	}
	return nil
}

// plan looks for the places of a gang, unless less is free in the whole cluster than it asks for.
func (e *engine) plan(g *group) (gang.Plan, error) {
	if e.sample.Allocated > e.history.Capacity-g.least {
		return gang.Plan{}, nil
	}
	return gang.Place(g.on(e.cluster), g.at(e.setup, e.sample.At-e.kept[g.jobs[0]]), e.gangConfig(true))
}

func (e *engine) gangConfig(brief bool) gang.Config {
	return gang.Config{Policy: e.policy, MaxDomains: e.setup.Gangs.MaxDomains, SkipExplanation: brief}
}

// leaveOut drops a member that its gang starts without.
func (e *engine) leaveOut(job int) {
	e.history.Outcomes[job].State = Dropped
	e.sample.Dropped++
	e.log(job, leftOut)
}
