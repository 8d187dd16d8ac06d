package gang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Drain returns which room the gang waits for while its present owners end: places for the first members by rank that
// MinCount asks for, in one domain of each required level, as if the pods of others were gone that end some time. Holds
// count as in Place, and so do pods that never end.
//
// The order is that of Place: the first preferred level of which one domain takes all, the fewest domains of each; then,
// instead of the tightest, the domain with the least to wait for. In it the room that is free now is taken first, then
// the devices that are free the earliest where the ends of all pods are known (Cluster.Ends), else those with the fewest
// slots that others have.
//
// A host that pods leave has what they give back of it (Cluster.Host), beside what is free; a pod may be waited for on behalf
// of its host alone. Pods of nodes that are avoided stay.
//
// It changes nothing. It is refused where Place would be even on the emptied cluster, and where the room is on sick
// devices, held with a higher priority, or with pods that never end. The error is broken input.
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
		d = s.free()
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

// drained is the room of one domain that a gang may wait for.
type drained struct {
	name     string
	spreads  []int
	places   []vgpu.Assignment
	blockers []Blocker
	// slots that the blockers have, and when the last of them ends.
	slots, until int64
}

// drain returns the room to wait for, nil where no domain takes the gang as its devices are, whoever ends.
func (s *search) drain() *drained {
	r, w := s.reasons(), newWait(s.ground)
	required := slices.Contains(s.g.Wishes.Required, NVLink)
	if required || slices.Contains(r.preferred, NVLink) {
		if d := s.drainOn(w, true, r); d != nil || required {
			return d
		}
	}
	r.preferred = slices.DeleteFunc(slices.Clone(r.preferred), func(key string) bool { return key == NVLink })
	return s.drainOn(w, false, r)
}

// free returns room that is free now, nil where Place finds none: it tries orders of unlike members that drain does not.
func (s *search) free() *drained {
	places := s.best()
	if places == nil {
		return nil
	}
	for _, i := range s.crew.order[s.need:] {
		places[i] = vgpu.Assignment{UID: places[i].UID, Pod: places[i].Pod}
	}
	return &drained{places: places}
}

// drainOn is drain on islands or on nodes.
func (s *search) drainOn(w *wait, islands bool, r reasons) *drained {
	v := w.over(islands, s.g, r, s.crew.first(s.need))
	q := v.task
	for level := range len(q.preferred) + 1 {
		levels := q.required
		if level < len(q.preferred) {
			if _, one := q.preferred[level].whole(); !one {
				continue
			}
			levels = append(slices.Clone(q.required), q.preferred[level])
		}
		if d := v.best(q.candidates(levels), s.ground); d != nil {
			return d
		}
	}
	return nil
}

// drains is the number of domains with equal spreads that are compared with real placements, those with the least to wait
// for by an estimate. More find a better one where the estimate is off, which it is for unlike members.
const drains = 4

// best returns the room to wait for in the first candidates that take the load.
func (v *view) best(list []*domain, now *ground) *drained {
	var best *drained
	ties := 0
	for at, d := range list {
		if best != nil && (slices.Compare(d.spreads, best.spreads) > 0 || ties >= drains) {
			break
		}
		if at >= now.most {
			now.stats.Cut = true
			break
		}
		now.stats.Tried++
		next := v.in(d.cells)
		if next == nil {
			continue
		}
		ties++
		if next.name = v.task.name(d); best == nil || next.sooner(best, v.wait.known) {
			best = next
		}
	}
	return best
}

// in returns what to wait for in a domain: on as few cells as the load takes, or on all of them where that fails, as it
// may for unlike members, for whom another order is tried as well: see task.again.
func (v *view) in(cells []int32) *drained {
	l := &v.task.load
	order, used := cells, len(cells)
	if len(v.task.reasons) > 0 {
		order, used = v.task.chart.sequence(cells, v.task.reasons, l)
	}
	d := v.onCells(order[:used], v.before.scarcest(order[:used], l))
	if d == nil && used < len(order) {
		d = v.onCells(order, v.before.scarcest(order, l))
	}
	if d == nil && len(l.counts) > 1 {
		d = v.onCells(cells, v.before.bySize(l))
	}
	return d
}

// onCells puts the members, class by class, where there is room now as far as it goes, then where there is room the
// soonest.
func (v *view) onCells(cells []int32, classes []int) *drained {
	l := &v.task.load
	x := v.before.trial()
	x.fill(cells, classes, l)
	y := v.later.trial()
	y.repeat(x)
	rest := load{counts: slices.Clone(l.counts)}
	for k := range rest.counts {
		rest.counts[k] -= y.placed[k]
	}
	if y.fill(v.parts(cells), classes, &rest); int64(y.all) < members(l) {
		return nil
	}
	reasons := make([]*division, 0, len(v.task.reasons))
	for _, of := range v.task.reasons {
		reasons = append(reasons, v.later.division(of.key))
	}
	d := &drained{places: y.places(reasons), spreads: y.spreads(reasons)}
	v.wait.leave(d)
	return d
}

// repeat books what another trial has placed.
func (y *trial) repeat(x *trial) {
	for _, p := range x.parts {
		for _, a := range p.places {
			y.book(p.class, y.chart.cells[p.cell].node, a)
		}
	}
	y.parts = slices.Clone(x.parts)
}

// sooner orders rooms to wait for: by the fewest domains, by the time where it is known, by slots, by name.
func (d *drained) sooner(o *drained, known bool) bool {
	if order := slices.Compare(d.spreads, o.spreads); order != 0 {
		return order < 0
	}
	if known && d.until != o.until {
		return d.until < o.until
	}
	return cmp.Or(cmp.Compare(d.slots, o.slots), cmp.Compare(d.name, o.name)) < 0
}
