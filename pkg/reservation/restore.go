package reservation

import (
	"fmt"
	"maps"
)

// Restore returns a State that remembers what a dump says. The error names what is wrong with the dump.
func Restore(d *Dump) (*State, error) {
	s := New(d.Config)
	s.reserving, s.gates, s.versions, s.begun = d.Reserving, d.Gates, d.Versions, d.Begun
	for i := range d.Gangs {
		g, err := d.Gangs[i].restore()
		if err != nil {
			return nil, fmt.Errorf("restore gang %s: %w", d.Gangs[i].Ref, err)
		}
		s.gangs[g.Ref] = g
	}
	for i := range d.Pods {
		p, err := d.Pods[i].restore()
		if err != nil {
			return nil, fmt.Errorf("restore pod %s: %w", d.Pods[i].Pod, err)
		}
		s.pods[p.UID] = p
	}
	for _, e := range d.Evictions {
		s.evictions[e.Preemptor] = e.Number
	}
	for _, c := range d.Chosen {
		s.chosen[c.UID] = c
	}
	s.allowance.full = d.Allowance.Full
	for _, c := range d.Allowance.Claims {
		s.allowance.claims[c.Preemptor] = claim{c.Count, c.Priority, c.Since, c.Due}
	}
	return s, nil
}

func (d *GangDump) restore() (*group, error) {
	g := &group{Ref: d.Ref, version: d.Version, priority: d.Priority, grouped: d.Grouped, arrived: d.Arrived, pauses: newPauses()}
	g.members = members{bound: setOf(d.Bound), leaving: copyOf(d.Leaving), repairs: copyOf(d.Repairs)}
	p := &d.Pauses
	g.retry, g.failures, g.limits, g.unlimit, g.inVain = p.Retry, p.Failures, copyOf(p.Limits), p.Unlimit, p.InVain
	g.failed, g.seekVictimsAt, g.retriesToSeek, g.noVictimsReason, g.voidRooms, g.fruitlessSearches = setOf(p.Failed), p.Ask, p.AskAgain, p.Unhelped, p.Voids, p.Asked
	if v := d.Vacating; v != nil {
		g.vacating = &vacating{v.Members, v.Until}
	}
	var err error
	if g.phase, err = d.restorePhase(); err != nil {
		return nil, err
	}
	g.need, err = d.restoreNeed()
	return g, err
}

func (d *GangDump) restorePhase() (phase, error) {
	if d.Phase == Unplaced.String() {
		return unplaced{}, nil
	}
	if d.Plan == nil {
		return nil, fmt.Errorf("phase %q without a plan", d.Phase)
	}
	p := newPlan()
	p.preempted, p.reserved = d.Plan.Preempted, setOf(d.Plan.Reserved)
	for _, at := range d.Plan.Places {
		p.places[at.UID] = at
	}
	switch d.Phase {
	case Planned.String():
		return &planned{plan: p, made: d.Plan.Since, gate: d.Plan.Gate}, nil
	case Binding.String():
		return &binding{plan: p, since: d.Plan.Since}, nil
	case Running.String():
		return &running{plan: p}, nil
	}
	return nil, fmt.Errorf("unknown phase %q, known are %v, %v, %v and %v", d.Phase, Unplaced, Planned, Binding, Running)
}

func (d *GangDump) restoreNeed() (need, error) {
	var r refused
	if d.Refused != nil {
		r = d.Refused.restore()
	}
	switch {
	case d.Need == Satisfied.String():
		return nil, nil
	case d.Need == Incomplete.String() && d.Missing != nil:
		return &incomplete{d.Missing.Why, d.Missing.Since, d.Missing.Told}, nil
	case d.Need == Refused.String() && d.Refused != nil:
		return &r, nil
	case d.Need == Reserving.String() && d.Refused != nil && d.Kept != nil:
		k := d.Kept
		return &reserving{refused: r, holds: k.Holds, room: k.Room, lacking: k.Lacking, since: k.Since, until: k.Until}, nil
	case d.Need == Preempting.String() && d.Refused != nil && d.Made != nil:
		return &preempting{refused: r, Made: d.Made.Made, evictions: d.Made.Evictions, dryRun: d.Made.Trial}, nil
	}
	return nil, fmt.Errorf("need %q is not one of %v, %v, %v, %v and %v, or lacks what belongs to it",
		d.Need, Satisfied, Incomplete, Refused, Reserving, Preempting)
}

func (d *RefusedDump) restore() refused {
	r := refused{Refusal: d.Refusal, notified: setOf(d.Notified), turn: d.Turn, at: d.At}
	if d.Waits {
		r.wait = &wait{since: d.Since, look: d.Look, later: d.Later, woken: d.Woken}
	}
	return r
}

func (d *PodDump) restore() (*preemptor, error) {
	p := &preemptor{PodRef: d.PodRef, PodPauses: d.PodPauses}
	if d.Phase == Roomless.String() {
		return p, nil
	}
	if d.Room == nil {
		return nil, fmt.Errorf("phase %q without a room", d.Phase)
	}
	room := *d.Room
	room.withdrawn, room.evictions = copyOf(d.Withdrawn), d.Evictions
	switch d.Phase {
	case Leaving.String():
		p.phase = &leavingRoom{PodRoom: room, until: d.At}
	case Cleared.String():
		p.phase = &clearedRoom{PodRoom: room, since: d.At}
	default:
		return nil, fmt.Errorf("unknown phase %q, known are %v, %v and %v", d.Phase, Roomless, Leaving, Cleared)
	}
	return p, nil
}

func setOf[K ~string](keys []K) map[K]bool {
	set := make(map[K]bool, len(keys))
	for _, k := range keys {
		set[k] = true
	}
	return set
}

// copyOf returns a map that is never nil.
func copyOf[K ~string, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	maps.Copy(c, m)
	return c
}
