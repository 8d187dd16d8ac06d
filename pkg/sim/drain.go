package sim

import (
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// longestDrain bounds DrainAfter and DrainTimeout, 52 days. Longer would bring the sum with the time of a run near the latest time.
const longestDrain = time.Duration(1) << 52

// seekRoom looks for room to keep for a gang while its present owners end, and passes the result to the machine.
func (e *engine) seekRoom(g *group, seek *reservation.SeekRoom) error {
	c := g.on(e.cluster)
	c.Ends, c.Avoids = e.endOf, func(node string) bool { return seek.Avoid[node] }
	turn := gang.DrainCheck{Drains: e.setup.Gangs.Drains, Since: seek.Since.Unix(), Now: unix(e.sample.At), Started: e.startOf}
	want := e.wanted(g)
	sought := reservation.RoomSought{Ref: g.ref, UID: g.uid()}
	plan, err := gang.Keep(c, want, e.gangConfig(false), turn)
	if plan.Refused != nil && len(seek.Avoid) > 0 {
		c.Avoids, sought.Anywhere = nil, true
		plan, err = gang.Keep(c, want, e.gangConfig(false), turn)
	}
	if err != nil {
		return err
	}
	if plan.Places == nil {
		_, err = e.step(sought)
		return err
	}
	sought.Found = &plan
	for _, place := range plan.Places {
		if len(place.Containers) > 0 {
			sought.Holds = append(sought.Holds, vgpu.Hold{Assignment: place, Priority: e.priority(g), Until: plan.Until})
		}
	}
	return e.beginDrain(g, &sought)
}

// beginDrain has room kept for a gang.
func (e *engine) beginDrain(g *group, sought *reservation.RoomSought) error {
	a, err := e.step(*sought)
	if err != nil {
		return err
	}
	e.machine.drain = g
	o := &e.history.Gangs[g.number]
	o.Drains, o.DrainedAt = o.Drains+1, e.sample.At
	e.history.drains = append(e.history.drains, a.holds)
	e.log(g.jobs[0], drains)
	return nil
}

// lookAtDrain notes the end of a gang's drain: the run then tries all that wait. If the gang starts in its drain, the
// log shows the start alone.
func (e *engine) lookAtDrain() {
	g := e.machine.drain
	if g == nil {
		return
	}
	phase, need := e.machine.state.Phase(g.ref)
	if need == reservation.Reserving {
		return
	}
	e.machine.drain, e.freed = nil, true
	if phase == reservation.Unplaced {
		for _, job := range g.jobs { // what was kept from the start
			e.release(e.setup.Jobs[job].Request.UID)
		}
		e.log(g.jobs[0], givesUp)
	}
}

// blocked returns the nodes with pods that a gang waits for, during its drain.
func (e *engine) blocked(g *group) (nodes []string) {
	room, _ := e.machine.state.Reservation(g.ref)
	if room == nil {
		return nil
	}
	for _, l := range room.Blockers {
		if job, known := e.history.find(l.UID); known && slices.Contains(e.live, job) {
			nodes = append(nodes, e.history.Outcomes[job].Assignment.Node)
		}
	}
	return nodes
}

// passes reports whether a pod, or a gang, may use kept room while others of its kind may not.
func (e *engine) passes(job int) bool {
	g := e.machine.drain
	if g == nil || g == e.history.groupOf[job] {
		return g != nil
	}
	r := e.request(job)
	_, holds := e.machine.state.Reservation(g.ref)
	return r.Ends > 0 && slices.ContainsFunc(holds, func(h vgpu.Hold) bool { return r.Ends <= h.Until })
}

// endOf returns the Unix time at which a pod ends, 0 where it does not say. The time is rounded down: a pod that may
// use the room until then has ended by then.
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
