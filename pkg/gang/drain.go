package gang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Drain returns the room that the gang waits for while the pods on it end. Drain places the first MinCount members by
// rank, in one domain of each required level, as if all pods of others had ended. Pods that never end stay, and holds
// count as in Place.
//
// The order is that of Place: the first preferred level of which one domain takes all, then the fewest domains of each.
// Then comes the domain with the least to wait for, instead of the tightest. In it Drain first uses the room that is
// free now. Next it uses the devices that are free the earliest, where the ends of all pods are known (Cluster.Ends).
// Otherwise it uses the devices with the fewest slots of other pods.
//
// A host has the CPU and memory that ending pods give back (Cluster.Host), beside what is free. A gang may wait for a
// pod because of its host alone. Pods on avoided nodes stay.
//
// Drain changes nothing. There is a refusal where Place would refuse even on the emptied cluster. There is also one
// where the room is on unhealthy devices, held with a higher priority, or in use by pods that never end. An error means
// broken input.
func Drain(c *Cluster, g *Group, cfg Config) (Plan, error) {
	if err := validate(c, g, cfg); err != nil {
		return Plan{}, fmt.Errorf("drain room for gang %s: %w", g.Name, err)
	}
	var plan Plan
	if len(g.Members) == 0 {
		return plan, nil
	}
	s := newSearch(c, g, cfg, &plan.Stats)
	d := s.drain()
	if d == nil {
		d = s.freeNow()
	}
	if d == nil {
		plan.Refused = s.refuse()
		return plan, nil
	}
	plan.Places, plan.Spread, plan.Blockers = d.places, s.spread(d.places), d.blockers
	if d.until < unknownEnd {
		plan.Until = d.until
	}
	return plan, nil
}

// drainPlan is the room of one domain that a gang may wait for.
type drainPlan struct {
	name     string
	spreads  []int
	places   []vgpu.Assignment
	blockers []Blocker
	// slots is the number of slots of the blockers. until is the end of the last blocker.
	slots, until int64
}

// drain returns the room to wait for, nil where no domain takes the gang after all pods have ended that may end.
func (s *search) drain() *drainPlan {
	r, w := s.objectives(), newWaitTimes(s.snapshot)
	required := slices.Contains(s.g.Wishes.Required, NVLink)
	if required || slices.Contains(r.preferred, NVLink) {
		if d := s.drainOn(w, true, r); d != nil || required {
			return d
		}
	}
	r.preferred = slices.DeleteFunc(slices.Clone(r.preferred), func(key string) bool { return key == NVLink })
	return s.drainOn(w, false, r)
}

// freeNow returns room that is free now, nil where Place finds none. Place tries orders of unlike members that drain
// does not.
func (s *search) freeNow() *drainPlan {
	places := s.best()
	if places == nil {
		return nil
	}
	for _, i := range s.members.order[s.need:] {
		places[i] = vgpu.Assignment{UID: places[i].UID, Pod: places[i].Pod}
	}
	return &drainPlan{places: places}
}

// drainOn is drain on islands or on nodes.
func (s *search) drainOn(w *waitTimes, islands bool, r objectives) *drainPlan {
	v := w.drainView(islands, s.g, r, s.members.countsOfFirst(s.need))
	q := v.problem
	for level := range len(q.preferred) + 1 {
		levels := q.required
		if level < len(q.preferred) {
			if _, one := q.preferred[level].onlyDomain(); !one {
				continue
			}
			levels = append(slices.Clone(q.required), q.preferred[level])
		}
		if d := v.best(q.domainsByBound(levels), s.snapshot); d != nil {
			return d
		}
	}
	return nil
}

// maxDrainTies is the number of domains with equal spreads that best compares with real placements, those with the
// least estimated wait first. A larger number finds a better domain where the estimate is off, as it is for unlike
// members.
const maxDrainTies = 4

// best returns the room to wait for in the first domains that take the load.
func (v *drainView) best(list []*domain, now *snapshot) *drainPlan {
	var best *drainPlan
	ties := 0
	for at, d := range list {
		if best != nil && (slices.Compare(d.spreads, best.spreads) > 0 || ties >= maxDrainTies) {
			break
		}
		if at >= now.maxDomains {
			now.stats.Cut = true
			break
		}
		now.stats.Tried++
		next := v.drainDomain(d.cells)
		if next == nil {
			continue
		}
		ties++
		if next.name = v.problem.name(d); best == nil || next.sooner(best, v.wait.endsKnown) {
			best = next
		}
	}
	return best
}

// drainDomain returns what to wait for in a domain. It uses as few cells as the load needs, or all cells where that
// fails. For unlike members it then tries another order of classes: see problem.placeLargestFirst.
func (v *drainView) drainDomain(cells []int32) *drainPlan {
	l := &v.problem.load
	order, used := cells, len(cells)
	if len(v.problem.objectives) > 0 {
		order, used = v.problem.topology.sequence(cells, v.problem.objectives, l)
	}
	d := v.onCells(order[:used], v.now.scarcest(order[:used], l))
	if d == nil && used < len(order) {
		d = v.onCells(order, v.now.scarcest(order, l))
	}
	if d == nil && len(l.counts) > 1 {
		d = v.onCells(cells, v.now.bySize(l))
	}
	return d
}

// onCells puts the members, class by class, on free room as far as it goes, then on the room that is free the soonest.
func (v *drainView) onCells(cells []int32, classes []int) *drainPlan {
	l := &v.problem.load
	x := v.now.attempt()
	x.fill(cells, classes, l)
	y := v.later.attempt()
	y.replay(x)
	rest := load{counts: slices.Clone(l.counts)}
	for k := range rest.counts {
		rest.counts[k] -= y.placed[k]
	}
	if y.fill(v.parts(cells), classes, &rest); int64(y.all) < members(l) {
		return nil
	}
	objectives := make([]*division, 0, len(v.problem.objectives))
	for _, of := range v.problem.objectives {
		objectives = append(objectives, v.later.division(of.key))
	}
	d := &drainPlan{places: y.places(objectives), spreads: y.spreads(objectives)}
	v.wait.addBlockers(d)
	return d
}

// replay books the placements of another attempt.
func (y *attempt) replay(x *attempt) {
	for _, p := range x.parts {
		for _, a := range p.places {
			y.book(p.class, y.topology.cells[p.cell].node, a)
		}
	}
	y.parts = slices.Clone(x.parts)
}

// sooner orders drain plans: by the fewest domains, by the time where it is known, by slots, by name.
func (d *drainPlan) sooner(o *drainPlan, known bool) bool {
	if order := slices.Compare(d.spreads, o.spreads); order != 0 {
		return order < 0
	}
	if known && d.until != o.until {
		return d.until < o.until
	}
	return cmp.Or(cmp.Compare(d.slots, o.slots), cmp.Compare(d.name, o.name)) < 0
}
