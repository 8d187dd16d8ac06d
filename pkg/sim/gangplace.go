package sim

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// tryGroup tries a gang, and reports whether it started. hopeless: a gang like it has no place.
func (e *engine) tryGroup(g *group, hopeless bool) (bool, error) {
	version, err := e.ask(g)
	if err != nil {
		return false, err
	}
	room, void := e.madeRoom(g)
	if room != nil {
		return true, e.beginGroup(g, version, room)
	}
	if !hopeless && g.seen != e.releases { // placements of the meantime made no room
		e.history.Gangs[g.number].Attempts++
		plan, err := e.plan(g)
		if err != nil {
			return false, err
		}
		if plan.Places != nil {
			return true, e.beginGroup(g, version, plan.Places)
		}
		g.seen = e.releases
	}
	return false, e.refuse(g, version, void)
}

// ask makes the machine request a plan for a gang, and returns the gang's version.
func (e *engine) ask(g *group) (reservation.Version, error) {
	a, err := e.step(reservation.Tried{
		Gang: e.facts(g), UID: g.uid(), Pod: g.gang.Name, Priority: e.priority(g), Grouped: true,
	})
	if err == nil && a.plan == nil {
		err = fmt.Errorf("try gang %s: the machine of reservations asks for no plan", g.gang.Name)
	}
	if err != nil {
		return 0, err
	}
	return a.plan.Version, nil
}

// plan looks for the places of a gang, unless the whole cluster has less free than its request.
func (e *engine) plan(g *group) (gang.Plan, error) {
	if e.sample.Allocated > e.history.Capacity-g.least {
		return gang.Plan{}, nil
	}
	want := e.wanted(g)
	if g.sizing != nil {
		want = g.with(g.sizing.target, e.setup, e.begun(g.jobs[0]))
	}
	plan, err := gang.Place(g.on(e.cluster), want, e.gangConfig(true))
	plan.Places = g.ofAll(plan.Places)
	return plan, err
}

// ofAll adds members without a place to the places of the first members; nil stays nil.
func (g *group) ofAll(places []vgpu.Assignment) []vgpu.Assignment {
	if places == nil || len(places) == len(g.jobs) {
		return places
	}
	return append(places, make([]vgpu.Assignment, len(g.jobs)-len(places))...)
}

func (e *engine) gangConfig(brief bool) gang.Config {
	return gang.Config{Policy: e.policy, MaxDomains: e.setup.Gangs.MaxDomains, SkipExplanation: brief}
}

// refuse reports to the machine that a gang has no place now, and looks for room to keep for it where the machine
// requests that. void says why the room of its evictions failed, "" where it did not.
func (e *engine) refuse(g *group, version reservation.Version, void string) error {
	refused := reservation.PlanRefused{
		Gang: e.facts(g), UID: g.uid(), Version: version, Void: void,
		Refusal: reservation.Refusal{Reason: gang.NoRoom, Lacking: g.want.MinCount},
	}
	if room, _ := e.machine.state.Reservation(g.ref); room != nil {
		refused.Kept.Stands = true // the run loses no device and no hold
		refused.Kept.Taken, refused.Kept.Short = room.Stand(g.on(e.cluster), e.wanted(g).Members)
	}
	a, err := e.step(refused)
	if err != nil || a.seek == nil {
		return err
	}
	return e.seekRoom(g, a.seek)
}

// beginGroup starts a gang at its places, which are the answer for a version of it.
func (e *engine) beginGroup(g *group, version reservation.Version, places []vgpu.Assignment) error {
	found := reservation.PlanFound{Gang: e.facts(g), UID: g.uid(), Version: version}
	for i, job := range g.jobs {
		if places[i].Node != "" {
			found.Places = append(found.Places, reservation.Place{Assignment: places[i], Host: e.setup.Jobs[job].Request.Host})
		}
	}
	found.Have = len(found.Places)
	if _, err := e.step(found); err != nil {
		return err
	}
	for i := range found.Places {
		uid := found.Places[i].UID
		if _, err := e.step(reservation.Reserved{Ref: g.ref, UID: uid}); err != nil {
			return err
		}
		if _, err := e.step(reservation.Permitted{Gang: e.facts(g), UID: uid}); err != nil {
			return err
		}
	}
	return e.bind(g, places)
}

// bind starts the members of a gang, and leaves out those without a place.
func (e *engine) bind(g *group, places []vgpu.Assignment) error {
	o := &e.history.Gangs[g.number]
	nodes := make([]int, 0, len(g.jobs))
	for i, job := range g.jobs {
		switch {
		case places[i].Node == "" && g.sizing != nil:
			continue // it may come later
		case places[i].Node == "":
			e.leaveOut(job)
			continue
		case i >= len(g.askers()):
			e.since[job] = e.sample.At // it was held back
		}
		if err := e.start(job, places[i]); err != nil {
			return fmt.Errorf("place gang %s: %w", g.gang.Name, err)
		}
		if _, err := e.step(reservation.Bound{Gang: e.facts(g), UID: places[i].UID}); err != nil {
			return err
		}
		nodes = append(nodes, e.places[e.cluster.Node(places[i].Node)])
	}
	o.State, o.Started, o.Spread = Running, e.sample.At, spread(e.history.levels, nodes)
	o.Waited += e.sample.At - g.since
	if g.sizing != nil {
		if err := e.resized(g); err != nil {
			return err
		}
	} else if duration := e.setup.Jobs[g.jobs[0]].Duration; duration > 0 {
		o.Ended = o.Started + duration - e.kept[g.jobs[0]]
	}
	return e.tell(g)
}

// leaveOut drops a member that its gang starts without.
func (e *engine) leaveOut(job int) {
	e.history.Outcomes[job].State = Dropped
	e.sample.Dropped++
	e.log(job, leftOut)
}
