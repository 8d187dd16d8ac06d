package sim

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// step is the shortest time after which it is looked again whether a gang is to have room kept, where DrainAfter is
	// shorter. Less finds the moment more exactly, and explains more refusals, which takes longer than all else.
	step = time.Second
	// maxDoublings bounds the pause between drains that came to nothing: 2¹⁰ times the first one.
	maxDoublings = 10
	// longestDrain bounds DrainAfter and DrainTimeout, 52 days: doubled maxDoublings times they are within a time.Duration.
	longestDrain = time.Duration(1) << 52
)

// drain is the room that is kept for a gang while its present owners end.
type drain struct {
	group *group
	holds []vgpu.Hold
	// until is when the last owner ends, in Unix seconds; 0 where nobody knows.
	until int64
	// ends is when the drain is given up.
	ends time.Duration
}

// head returns the gang whose turn it is to have room kept: of those that were refused, and whose last drain did not just
// come to nothing, that of the highest priority, then the one that was refused first. nil for none.
func (e *engine) head() *group {
	var first *group
	for _, g := range e.late {
		if g.short == never || g.wet > e.sample.At || e.nominated(g.jobs[0]) || e.setup.Queue == FIFO && g.jobs[0] != e.waiting[0] {
			continue
		}
		if first == nil || e.priority(g) > e.priority(first) || e.priority(g) == e.priority(first) && g.short < first.short {
			first = g
		}
	}
	return first
}

func (e *engine) priority(g *group) int32 { return e.rank(g.jobs[0]) }

// drainDue returns when a drain may begin or ends next, if it is after now.
func (e *engine) drainDue() (time.Duration, bool) {
	at := never
	if !e.setup.Gangs.Drains {
		return at, false
	}
	for _, g := range e.late {
		if due := max(g.due, g.wet); due > e.sample.At {
			at = min(at, due)
		}
	}
	if e.drain != nil {
		at = min(at, e.drain.ends)
	}
	return at, at < never
}

// drainNext keeps room for the gang whose turn it is. It reports whether room begins to be kept, and whether other room that
// was kept is let go.
func (e *engine) drainNext() (began, freed bool, err error) {
	for e.setup.Gangs.Drains {
		g := e.head()
		if g == nil || g.due > e.sample.At || e.drain != nil && e.drain.group == g {
			return began, freed, nil
		}
		over, err := e.passedOver(g)
		if err != nil {
			return began, freed, err
		}
		if !over {
			g.due = e.after(e.pause())
			return began, freed, nil
		}
		if e.drain != nil {
			freed = true
			e.letGo()
		}
		if began, err = e.beginDrain(g); began || err != nil {
			return began, freed, err
		}
		e.dryUp(g)
	}
	return began, freed, nil
}

func (e *engine) pause() time.Duration { return max(step, e.setup.Gangs.DrainAfter) }

// after returns the time that is so much later than now, never beyond what a time can be.
func (e *engine) after(d time.Duration) time.Duration {
	if e.sample.At > never-d {
		return never
	}
	return e.sample.At + d
}

// passedOver reports whether the room that a gang waits for has changed hands since it began to wait.
func (e *engine) passedOver(g *group) (bool, error) {
	c := g.on(e.cluster)
	c.Ends = e.endOf
	plan, err := gang.Place(c, g.at(e.setup, e.sample.At-e.kept[g.jobs[0]]), e.gangConfig(false))
	if err != nil || plan.Refused == nil {
		return false, err
	}
	return plan.Refused.PassedOver(unix(g.short), e.startOf), nil
}

// beginDrain keeps room for a gang, and reports whether there is some to wait for.
func (e *engine) beginDrain(g *group) (bool, error) {
	c := g.on(e.cluster)
	c.Ends = e.endOf
	plan, err := gang.Drain(c, g.at(e.setup, e.sample.At-e.kept[g.jobs[0]]), e.gangConfig(false))
	if err != nil || plan.Places == nil {
		return false, err
	}
	d := &drain{group: g, until: plan.Until, ends: never}
	if timeout := e.setup.Gangs.DrainTimeout; timeout > 0 {
		d.ends = e.after(timeout)
	}
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
	o.Drains, o.DrainedAt = o.Drains+1, e.sample.At
	e.history.drains = append(e.history.drains, d.holds)
	e.log(g.jobs[0], drains)
	return true, nil
}

// endOf returns the Unix time at which a pod ends, 0 where it does not say. It is rounded down: what is let in until then
// is gone by then.
func (e *engine) endOf(uid vgpu.UID, _ string) int64 {
	job, known := e.find(uid)
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
	if job, known := e.find(uid); known {
		return unix(e.history.Outcomes[job].Started)
	}
	return -1
}

// find returns the job with a UID.
func (e *engine) find(uid vgpu.UID) (job int, known bool) {
	if e.jobOf == nil {
		e.jobOf = make(map[vgpu.UID]int, len(e.setup.Jobs))
		for i := range e.setup.Jobs {
			e.jobOf[e.setup.Jobs[i].Request.UID] = i
		}
	}
	job, known = e.jobOf[uid]
	return job, known
}

// idle reports whether all room that is kept is free for the gang.
func (e *engine) idle() bool {
	nodes := map[string]*vgpu.Node{}
	for i := range e.drain.holds {
		h := &e.drain.holds[i]
		if nodes[h.Node] == nil {
			nodes[h.Node] = e.cluster.Node(h.Node).Clone()
		}
		if nodes[h.Node].Add(h.Assignment) != nil {
			return false
		}
	}
	return true
}

// dryUp ends the drain of a gang that came to nothing, where there is one, and puts its turn off.
func (e *engine) dryUp(g *group) {
	if e.drain != nil && e.drain.group == g {
		e.letGo()
	}
	g.wet = e.after(e.pause() << min(g.dry, maxDoublings))
	g.dry++
}

// timeout gives up a drain that has taken too long, and reports whether there is one.
func (e *engine) timeout() bool {
	if e.drain == nil || e.drain.ends > e.sample.At {
		return false
	}
	e.dryUp(e.drain.group)
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
