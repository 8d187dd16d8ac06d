package sim

import (
	"fmt"
	"time"

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
		if g.due == never {
			g.due = e.sample.At + e.setup.Gangs.DrainAfter
		}
		return false, nil
	}
	e.release(g)
	var nodes []int
	for i, job := range g.jobs {
		if plan.Places[i].Node == "" {
			e.leaveOut(job)
			continue
		}
		if err := e.start(job, plan.Places[i]); err != nil {
			return false, fmt.Errorf("place gang %s: %w", g.gang.Name, err)
		}
		nodes = append(nodes, e.places[e.cluster.Node(plan.Places[i].Node)])
	}
	o.State, o.Started, o.Spread = Running, e.sample.At, spread(e.history.levels, nodes)
	if duration := e.setup.Jobs[g.jobs[0]].Duration; duration > 0 {
		o.Ended = o.Started + duration
	}
	return true, nil
}

// plan looks for the places of a gang, unless less is free in the whole cluster than it asks for.
func (e *engine) plan(g *group) (gang.Plan, error) {
	if e.sample.Allocated > e.history.Capacity-g.least {
		return gang.Plan{}, nil
	}
	return gang.Place(g.on(e.cluster), g.at(e.setup, e.sample.At), e.gangConfig())
}

func (e *engine) gangConfig() gang.Config {
	return gang.Config{Policy: e.policy, MaxDomains: e.setup.Gangs.MaxDomains}
}

// leaveOut drops a member that its gang starts without.
func (e *engine) leaveOut(job int) {
	e.history.Outcomes[job].State = Dropped
	e.sample.Dropped++
	e.history.log = append(e.history.log, entry{job, leftOut, e.sample.At})
}

// pauseOfDrains is the least time after which a gang is asked again for which there was no room to wait for. Less asks more
// often for what only the ends of pods change.
const pauseOfDrains = time.Minute

// drain is the room that is kept for a gang while its present owners end.
type drain struct {
	group *group
	holds []vgpu.Hold
	// until is when the last owner ends, in Unix seconds; 0 where nobody knows.
	until int64
}

// drainDue returns the gang that is the next to have room kept for it, nil where there is none or one has.
func (e *engine) drainDue() *group {
	if !e.setup.Gangs.Drains || e.drain != nil {
		return nil
	}
	var first *group
	for _, g := range e.late {
		if e.setup.Queue == FIFO && g.jobs[0] != e.waiting[0] {
			continue
		}
		if first == nil || e.before(g, first) {
			first = g
		}
	}
	return first
}

// before reports whether gang a has room kept for it before gang b, which came earlier: of those that are due that of the
// higher priority, else the one that is due earlier.
func (e *engine) before(a, b *group) bool {
	if a.due <= e.sample.At && b.due <= e.sample.At {
		return e.priority(a) > e.priority(b)
	}
	return a.due < b.due
}

func (e *engine) priority(g *group) int32 { return e.setup.Jobs[g.jobs[0]].Request.Priority }

// drainNext keeps room for the gangs that are due, until one has some, and reports whether one has now.
func (e *engine) drainNext() (bool, error) {
	for {
		g := e.drainDue()
		if g == nil || g.due > e.sample.At {
			return false, nil
		}
		began, err := e.beginDrain(g)
		if began || err != nil {
			return began, err
		}
		g.due = e.sample.At + max(e.sample.At-e.history.Gangs[g.number].Arrived, pauseOfDrains)
	}
}

// beginDrain keeps room for a gang, and reports whether there is some to wait for.
func (e *engine) beginDrain(g *group) (bool, error) {
	c := g.on(e.cluster)
	c.Ends = e.endOf
	plan, err := gang.Drain(c, g.at(e.setup, e.sample.At), e.gangConfig())
	if err != nil || plan.Places == nil {
		return false, err
	}
	d := &drain{group: g, until: plan.Until}
	for _, place := range plan.Places {
		if len(place.Containers) == 0 {
			continue
		}
		hold := vgpu.Hold{Assignment: place, Priority: e.priority(g), Until: plan.Until}
		if err := e.cluster.Hold(hold); err != nil {
			return false, fmt.Errorf("drain room for gang %s: %w", g.gang.Name, err)
		}
		d.holds = append(d.holds, hold)
	}
	e.drain = d
	e.held(d)
	o := &e.history.Gangs[g.number]
	o.Drained, o.DrainedAt = true, e.sample.At
	e.history.drains = append(e.history.drains, d.holds)
	e.history.log = append(e.history.log, entry{g.jobs[0], drains, e.sample.At})
	return true, nil
}

// endOf returns the Unix time at which a pod ends, 0 where it does not say. It is rounded down: what is let in until then
// is gone by then.
func (e *engine) endOf(uid vgpu.UID, _ string) int64 {
	if e.jobOf == nil {
		e.jobOf = make(map[vgpu.UID]int, len(e.setup.Jobs))
		for i := range e.setup.Jobs {
			e.jobOf[e.setup.Jobs[i].Request.UID] = i
		}
	}
	job, known := e.jobOf[uid]
	if !known || !e.setup.Jobs[job].DeclaresEnd {
		return 0
	}
	return unix(e.history.Outcomes[job].Ended)
}

// release lets go of the room that was kept for a gang.
func (e *engine) release(g *group) {
	if e.drain == nil || e.drain.group != g {
		return
	}
	d := e.drain
	for i := range d.holds {
		e.cluster.Release(d.holds[i].UID)
	}
	e.drain = nil
	e.held(d)
}

// held notes that room began to be kept, or no longer is.
func (e *engine) held(d *drain) {
	for i := range d.holds {
		e.changed(e.cluster.Node(d.holds[i].Node))
	}
}

// passes reports whether a pod, or a gang, may use room that is kept while others of its kind may not.
func (e *engine) passes(job int) bool {
	switch {
	case e.drain == nil:
		return false
	case e.drain.group == e.history.groupOf[job]:
		return true
	}
	r := e.setup.requestAt(job, e.sample.At)
	return 0 < r.Ends && r.Ends <= e.drain.until
}
