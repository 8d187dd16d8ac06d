package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// step is the shortest time after which it is looked again whether a gang is to have room kept, where DrainAfter is
	// shorter. Less finds the moment more exactly, and searches more often, which takes longer than all else.
	step = time.Second
	// longestPause is that time where DrainAfter is longer, as in the scheduler.
	longestPause = time.Minute
	// maxDoublings bounds the pause between drains that came to nothing: 2¹⁰ times the first one.
	maxDoublings = 10
	// longestDrain bounds DrainAfter and DrainTimeout, 52 days: doubled maxDoublings times they are within a time.Duration.
	longestDrain = time.Duration(1) << 52
)

// drain is the room that is kept for a gang while its present owners end.
type drain struct {
	group *group
	gang.Kept
	holds []vgpu.Hold
	// until is when the last owner ends, in Unix seconds; 0 where nobody knows.
	until int64
	// ends is when the drain is given up.
	ends time.Duration
}

// turns returns the gangs that were refused, in the order in which they have room kept: those of the highest priority first,
// then those that were refused first.
func (e *engine) turns() []*group {
	all := make([]*group, 0, len(e.late))
	for _, g := range e.late {
		if g.short == never || e.nominated(g.jobs[0]) || e.setup.Queue == FIFO && g.jobs[0] != e.waiting[0] {
			continue
		}
		all = append(all, g)
	}
	slices.SortStableFunc(all, func(a, b *group) int {
		return cmp.Or(cmp.Compare(e.priority(b), e.priority(a)), cmp.Compare(a.short, b.short))
	})
	return all
}

func (e *engine) priority(g *group) int32 { return e.rank(g.jobs[0]) }

// drainDue returns when a drain may begin or ends next, if it is after now.
func (e *engine) drainDue() (time.Duration, bool) {
	at := never
	if e.setup.Gangs.Drains == gang.NoDrains {
		return at, false
	}
	for _, g := range e.late {
		if g.due > e.sample.At {
			at = min(at, g.due)
		}
	}
	if e.drain != nil {
		at = min(at, e.drain.ends)
	}
	return at, at < never
}

// drainNext keeps room for the first gang in turn for which the time has come. A drain goes on unless there is one of a higher
// priority. It reports whether room begins to be kept, and whether other room that was kept is let go.
func (e *engine) drainNext() (began, freed bool, err error) {
	if e.setup.Gangs.Drains == gang.NoDrains {
		return false, false, nil
	}
	for _, g := range e.turns() {
		if e.drain != nil && e.priority(g) <= e.priority(e.drain.group) {
			break
		}
		if g.due > e.sample.At {
			continue
		}
		plan, err := e.roomFor(g)
		if err != nil {
			return false, false, err
		}
		if plan.Places == nil {
			continue
		}
		if e.drain != nil {
			freed = true
			e.letGo()
		}
		return true, freed, e.beginDrain(g, &plan)
	}
	return false, false, nil
}

// pause is that between two looks, and after the first drain that came to nothing.
func (e *engine) pause() time.Duration { return max(step, min(e.setup.Gangs.DrainAfter, longestPause)) }

// after returns the time that is so much later than now, never beyond what a time can be.
func (e *engine) after(d time.Duration) time.Duration {
	if e.sample.At > never-d {
		return never
	}
	return e.sample.At + d
}

// roomFor returns the room to keep for a gang, without places where the time has not come: it is looked again later then.
func (e *engine) roomFor(g *group) (gang.Plan, error) {
	c := g.on(e.cluster)
	c.Ends, c.Avoids = e.endOf, func(node string) bool { return g.failed[node] }
	turn := gang.DrainCheck{Drains: e.setup.Gangs.Drains, Since: unix(g.short), Now: unix(e.sample.At), Started: e.startOf}
	want := g.at(e.setup, e.sample.At-e.kept[g.jobs[0]])
	plan, err := gang.Keep(c, want, e.gangConfig(false), turn)
	if plan.Refused != nil && len(g.failed) > 0 {
		clear(g.failed) // nothing else is left
		plan, err = gang.Keep(c, want, e.gangConfig(false), turn)
	}
	if err == nil && plan.Places == nil {
		g.due = e.after(max(e.pause(), time.Duration(turn.Pause())*time.Second))
	}
	return plan, err
}

// beginDrain keeps room for a gang.
func (e *engine) beginDrain(g *group, plan *gang.Plan) error {
	d := &drain{group: g, Kept: gang.Kept{Places: plan.Places, Blockers: plan.Blockers}, until: plan.Until, ends: never}
	if timeout := e.setup.Gangs.DrainTimeout; timeout > 0 {
		d.ends = e.after(timeout)
	}
	for _, place := range plan.Places {
		if len(place.Containers) == 0 {
			continue
		}
		hold := vgpu.Hold{Assignment: place, Priority: e.priority(g), Until: plan.Until}
		if err := e.cluster.Hold(hold); err != nil {
			return fmt.Errorf("drain room for gang %s: %w", g.gang.Name, err)
		}
		d.holds = append(d.holds, hold)
	}
	e.drain = d
	e.held(d)
	o := &e.history.Gangs[g.number]
	o.Drains, o.DrainedAt = o.Drains+1, e.sample.At
	e.history.drains = append(e.history.drains, d.holds)
	e.log(g.jobs[0], drains)
	return nil
}

// endOf returns the Unix time at which a pod ends, 0 where it does not say. It is rounded down: what is let in until then
// is gone by then.
func (e *engine) endOf(uid vgpu.UID, _ string) int64 {
	job, known := e.history.find(uid)
	switch {
	case !known || e.setup.Jobs[job].Duration == 0:
		return gang.Never
	case !e.setup.Jobs[job].DeclaresEnd:
		return 0
	}
	return unix(e.history.Outcomes[job].Ended)
}

// startOf returns the Unix time at which a pod got its place, before all of a run for those that are there from the start.
func (e *engine) startOf(uid vgpu.UID, _ string) int64 {
	if job, known := e.history.find(uid); known {
		return unix(e.history.Outcomes[job].Started)
	}
	return -1
}

// find returns the job with a UID.
func (h *History) find(uid vgpu.UID) (job int, known bool) {
	if h.jobOf == nil {
		h.jobOf = make(map[vgpu.UID]int, len(h.setup.Jobs))
		for i := range h.setup.Jobs {
			h.jobOf[h.setup.Jobs[i].Request.UID] = i
		}
	}
	job, known = h.jobOf[uid]
	return job, known
}

// lookAtDrain ends the drain of a gang that has no place although the room that was kept for it is free.
func (e *engine) lookAtDrain(g *group) {
	if e.drain == nil || e.drain.group != g {
		return
	}
	want := g.at(e.setup, e.sample.At-e.kept[g.jobs[0]])
	if taken, short := e.drain.Stand(g.on(e.cluster), want.Members); len(taken) == 0 {
		if len(short) == 0 {
			short = e.drain.Nodes()
		}
		e.dryUp(short)
	}
}

// dryUp ends the drain, which came to nothing on some nodes, and puts the turn of its gang off.
func (e *engine) dryUp(nodes []string) {
	g := e.drain.group
	e.letGo()
	g.due = e.after(e.pause() << min(g.dry, maxDoublings))
	g.dry++
	for _, name := range nodes {
		g.failed[name] = true
	}
}

// timeout gives up a drain that has taken too long, and reports whether there is one.
func (e *engine) timeout() bool {
	if e.drain == nil || e.drain.ends > e.sample.At {
		return false
	}
	taken, _ := e.drain.Stand(e.drain.group.on(e.cluster), nil)
	e.dryUp(taken)
	return true
}

// letGo ends the drain before its gang starts.
func (e *engine) letGo() {
	g := e.drain.group
	e.release(g)
	e.log(g.jobs[0], givesUp)
}

// release lets go of the room that is kept for a gang, if it is.
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
	r := e.request(job)
	return 0 < r.Ends && r.Ends <= e.drain.until
}
