package gang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Place returns where the members go: all of them, or else as many as possible. Place takes the members with the lowest
// ranks, and at least MinCount of them; else the plan says why there is no room. The cluster does not change, and the
// answer is the same for the same nodes and members in any order. An error means broken input.
//
// One domain of each required level takes all members. Among the places in it the order is:
//
//  1. the first preferred level of which one domain takes all;
//  2. the fewest domains of each preferred level in turn, then the fewest nodes;
//  3. the domain that has the least room left beside the gang;
//  4. the sum of the policy's scores; then names.
//
// A member that needs more than one NVLink island may get any devices of a node. Place then does not compare how many
// islands it uses on different nodes.
//
// Place does not prefer one domain of a level at which a spread costs nothing (Losses). Without any preferred level it
// puts the members where the policy puts single pods. See weighLosses for levels at which a spread costs little.
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

// Apart reports whether the members of a gang that have a place are in several domains of a level that the gang requires.
func Apart(c *Cluster, g *Group, cfg Config) (bool, error) {
	if err := validate(c, g, cfg); err != nil {
		return false, fmt.Errorf("look at gang %s: %w", g.Name, err)
	}
	var stats Stats
	s := newSearch(c, g, cfg, &stats)
	return slices.ContainsFunc(g.Wishes.Required, func(key string) bool {
		_, one := s.snapshot.topology(key == NVLink).division(key).onlyDomain()
		return !one
	}), nil
}

// search is one call of Place or Drain.
type search struct {
	g        *Group
	members  *memberClasses
	snapshot *snapshot
	// need is the number of members that must get a place. The number is at least one, since a plan without a place
	// says nothing.
	need int
}

func newSearch(c *Cluster, g *Group, cfg Config, stats *Stats) *search {
	g = withSteps(g, len(c.Nodes))
	mc := classesOf(g)
	need := min(max(1, g.MinCount-len(g.Placed)), len(g.Members))
	return &search{g: g, members: mc, snapshot: newSnapshot(c, mc, cfg, stats), need: need}
}

// answer is the places of all members on one topology.
type answer struct {
	places []vgpu.Assignment
	level  int
	// spreads over the preferred levels; the last one counts nodes.
	spreads []int
	gain    int64
}

// best returns places for as many of the first members as possible, nil where they are too few.
func (s *search) best() []vgpu.Assignment {
	all := len(s.g.Members)
	r := s.objectives()
	a := s.weighLosses(r, all)
	if a == nil {
		n := s.maxMembers(s.need, all-1)
		if n == 0 {
			return nil
		}
		if a = s.weighLosses(r, n); a == nil {
			return nil
		}
	}
	return a.places
}

// maxMembers returns how many of the first members fit into a required domain, between low and high; 0 where low
// members do not fit.
func (s *search) maxMembers(low, high int) int {
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
func (s *search) fits(n int) bool { return s.answer(objectives{nodes: true}, n) != nil }

// objectives say which domains a place should be few of.
type objectives struct {
	preferred []string
	// nodes: fewer nodes are better.
	nodes bool
}

// answer returns the best places for the first n members. If islands are preferred, it compares the best places on
// islands and on nodes, since a pod on a node may use several islands.
func (s *search) answer(r objectives, n int) *answer {
	islands := slices.Contains(s.g.Wishes.Required, NVLink)
	var best *answer
	if islands || slices.Contains(r.preferred, NVLink) {
		best = s.answerOn(true, r, n)
	}
	if islands || best != nil && len(r.preferred) > 0 && best.level <= slices.Index(r.preferred, NVLink) {
		return best
	}
	other := s.answerOn(false, r, n)
	if best == nil || other != nil && other.beats(best) {
		return other
	}
	return best
}

// answerOn is answer on islands or on nodes.
func (s *search) answerOn(islands bool, r objectives, n int) *answer {
	t := s.snapshot.topology(islands)
	preferred := r.preferred
	if !islands {
		preferred = slices.DeleteFunc(slices.Clone(preferred), func(key string) bool { return key == NVLink })
	}
	q := t.problem(s.g.Wishes.Required, preferred, r.nodes, t.load(s.members.countsOfFirst(n)))
	f := q.solve()
	if f == nil {
		return nil
	}
	a := &answer{places: f.attempt.places(q.objectives), gain: f.attempt.gain, level: len(r.preferred)}
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

// spread counts the domains of the levels of the wishes; the last entry counts nodes.
func (s *search) spread(places []vgpu.Assignment) []Spread {
	var list []Spread
	for _, key := range slices.Concat(s.g.Wishes.Required, s.g.Wishes.Preferred, []string{nodes}) {
		if !slices.ContainsFunc(list, func(o Spread) bool { return o.Key == key }) {
			list = append(list, Spread{key, s.domains(key, places)})
		}
	}
	return list
}

// domains counts the domains of a level that places and the placed members use.
func (s *search) domains(key string, places []vgpu.Assignment) int {
	t := s.snapshot.topology(key == NVLink)
	v := t.division(key)
	used := slices.Clone(v.inUse)
	for i := range places {
		if places[i].Node != "" {
			used = append(used, t.domainsOf(&places[i], v)...)
		}
	}
	slices.Sort(used)
	return len(slices.Compact(used))
}
