package gang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Place returns where the members go: all of them, or where that is impossible as many as possible, those with the lowest
// ranks and at least what MinCount asks for; else why there is no room. It changes nothing, and gives the same answer for
// the same nodes and members in any order. The error is broken input.
//
// The domain of the required levels takes all members. Among the places that it has, the order is:
//
//  1. the first preferred level of which one domain takes all;
//  2. the fewest domains of each preferred level in turn, then the fewest nodes;
//  3. the domain that has the least room left beside the gang;
//  4. the policy's scores, added up; then names.
//
// The devices of a member that one NVLink island cannot take may be on any: which of the nodes has them on fewer islands
// does not count then.
//
// Levels at which a spread costs nothing (Losses) are no reason to prefer a place. Where no reason is left the members go
// where the policy puts single pods. See trade for levels at which it costs little.
func Place(c *Cluster, g *Group, cfg Config) (Plan, error) {
	if err := validate(c, g, cfg); err != nil {
		return Plan{}, fmt.Errorf("place gang %s: %w", g.Name, err)
	}
	var plan Plan
	if len(g.Members) == 0 {
		return plan, nil
	}
	s := newSearch(c, g, cfg, &plan.Stats)
	if places := s.best(); places != nil {
		plan.Places, plan.Spread = places, s.spread(places)
	} else if cfg.SkipExplanation {
		plan.Refused = &Refusal{Reason: NoRoom, Want: s.need, Of: len(g.Members), Cut: plan.Stats.Cut}
	} else {
		plan.Refused = s.refuse()
	}
	return plan, nil
}

// search is one question of Place.
type search struct {
	g      *Group
	crew   *crew
	ground *ground
	// need is the number of members that must get a place: one at least, since a plan without any says nothing.
	need int
}

func newSearch(c *Cluster, g *Group, cfg Config, stats *Stats) *search {
	w := crewOf(g)
	need := min(max(1, g.MinCount-len(g.Placed)), len(g.Members))
	return &search{g: g, crew: w, ground: newGround(c, w, cfg, stats), need: need}
}

// answer is places for all members, as one chart has them.
type answer struct {
	places []vgpu.Assignment
	level  int
	// spreads over the preferred levels, and the nodes at last.
	spreads []int
	gain    int64
}

// best returns places for as many of the first members as possible, nil where there are too few.
func (s *search) best() []vgpu.Assignment {
	all := len(s.g.Members)
	r := s.reasons()
	a := s.trade(r, all)
	if a == nil {
		n := s.most(s.need, all-1)
		if n == 0 {
			return nil
		}
		if a = s.trade(r, n); a == nil {
			return nil
		}
	}
	return a.places
}

// most returns how many of the first members fit into a required domain, from low to high; 0 where low do not.
func (s *search) most(low, high int) int {
	if high < low || !s.fits(low) {
		return 0
	}
	for low < high {
		if middle := (low + high + 1) / 2; s.fits(middle) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// fits reports whether the first n members fit into a required domain.
func (s *search) fits(n int) bool { return s.answer(reasons{nodes: true}, n) != nil }

// reasons are why a place is preferred.
type reasons struct {
	preferred []string
	// nodes: fewer nodes are better.
	nodes bool
}

// answer returns the best places for the first n members. Where islands are preferred, it is the better of what is on
// islands and of what is on nodes, on which a pod may use several islands.
func (s *search) answer(r reasons, n int) *answer {
	islands := slices.Contains(s.g.Wishes.Required, NVLink)
	var best *answer
	if islands || slices.Contains(r.preferred, NVLink) {
		best = s.onChart(true, r, n)
	}
	if islands || best != nil && len(r.preferred) > 0 && best.level <= slices.Index(r.preferred, NVLink) {
		return best
	}
	other := s.onChart(false, r, n)
	if best == nil || other != nil && other.beats(best) {
		return other
	}
	return best
}

// onChart answers on islands or on nodes.
func (s *search) onChart(islands bool, r reasons, n int) *answer {
	t := s.ground.chart(islands)
	preferred := r.preferred
	if !islands {
		preferred = slices.DeleteFunc(slices.Clone(preferred), func(key string) bool { return key == NVLink })
	}
	q := t.task(s.g.Wishes.Required, preferred, r.nodes, t.load(s.crew.first(n)))
	f := q.solve()
	if f == nil {
		return nil
	}
	a := &answer{places: f.trial.places(q.reasons), gain: f.trial.gain, level: len(r.preferred)}
	if f.level < len(preferred) {
		a.level = slices.Index(r.preferred, preferred[f.level])
	}
	for _, key := range append(slices.Clone(r.preferred), nodes) {
		a.spreads = append(a.spreads, s.domains(key, a.places))
	}
	return a
}

// beats orders answers on islands and on nodes.
func (a *answer) beats(o *answer) bool {
	return cmp.Or(cmp.Compare(a.level, o.level), slices.Compare(a.spreads, o.spreads)) < 0
}

// spread counts the domains of the levels of the wishes, and the nodes at last.
func (s *search) spread(places []vgpu.Assignment) []Spread {
	var list []Spread
	for _, key := range slices.Concat(s.g.Wishes.Required, s.g.Wishes.Preferred, []string{nodes}) {
		if !slices.ContainsFunc(list, func(o Spread) bool { return o.Key == key }) {
			list = append(list, Spread{key, s.domains(key, places)})
		}
	}
	return list
}

// domains counts the domains of a level that places and the members with a place use.
func (s *search) domains(key string, places []vgpu.Assignment) int {
	t := s.ground.chart(key == NVLink)
	v := t.division(key)
	used := slices.Clone(v.opened)
	for i := range places {
		if places[i].Node != "" {
			used = append(used, t.under(&places[i], v)...)
		}
	}
	slices.Sort(used)
	return len(slices.Compact(used))
}
