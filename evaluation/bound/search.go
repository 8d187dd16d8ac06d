package bound

import (
	"cmp"
	"slices"
)

// limits bound a search. Larger ones find patterns, or their absence, on harder nodes; the time grows with them.
type limits struct {
	// options bounds the ways to fill one device that are tried.
	options int
	// steps bounds the steps for one node, after those that follow the first pattern that gains.
	steps, after int
}

// usual limits end no search that matters on openb or on the project's shapes.
var usual = limits{options: 4000, steps: 200000, after: 4000}

// option is a way to fill one device, or a pod on several.
type option struct {
	width     int
	items     []int
	needs     amounts
	gain, net float64
}

// search tries the patterns of a node by branch and bound, best options first. Devices are alike, so that each option
// follows one that is no worse.
type search struct {
	*pricing
	// floor is the gain that a pattern must exceed, and that of the best one found.
	floor   float64
	options []option
	chosen  []int
	best    [][]*item
	limits  limits
	steps   int
	limit   int // of the steps
	cut     bool
}

func (s *search) run() {
	s.limit = s.limits.steps
	s.enumerate()
	some := s.cut
	s.cut = false
	s.prune()
	s.descend(0, s.t.devices, 0, amounts{})
	s.cut = s.cut || some
}

// enumerate lists the options that a pattern above the floor may have: with the best for all other devices, they reach it.
func (s *search) enumerate() {
	prices := amounts{}.rest(s.prices)
	for i, it := range s.items {
		if it.width > 1 && s.net[i]+s.node[s.t.devices-it.width]+prices > s.floor {
			s.options = append(s.options, option{it.width, []int{i}, it.needs, s.gains[i], s.net[i]})
		}
	}
	order := make([]int, 0, len(s.items))
	for i, it := range s.items {
		if it.width == 1 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.items[b].slots, s.items[a].slots) })
	s.extend(order, option{width: 1}, s.units, 0, s.floor-prices-s.node[s.t.devices-1])
}

// extend adds the option and those with more items, from order on, that may be worth at least so much.
func (s *search) extend(order []int, o option, units int, memory, least float64) {
	if s.cut = s.cut || len(s.options) >= s.limits.options; s.cut {
		return
	}
	if len(o.items) > 0 && o.net > least {
		s.options = append(s.options, o)
	}
	for at, i := range order {
		it := s.items[i]
		left := units - it.slots/s.unit
		if left < 0 || memory+it.perDevice > full || o.net+s.net[i]+s.device[left] <= least {
			continue
		}
		more := option{1, append(slices.Clone(o.items), i), o.needs.plus(it.needs), o.gain + s.gains[i], o.net + s.net[i]}
		if more.needs.within() {
			s.extend(order[at:], more, left, memory+it.perDevice, least)
		}
	}
}

// prune sorts the options by worth per device, and drops those that take no less than another and gain no more.
func (s *search) prune() {
	slices.SortStableFunc(s.options, func(a, b option) int {
		return cmp.Or(cmp.Compare(b.net/float64(b.width), a.net/float64(a.width)), cmp.Compare(b.gain, a.gain))
	})
	kept := s.options[:0]
	for i := range s.options {
		o := &s.options[i]
		if !slices.ContainsFunc(kept, func(k option) bool { return k.dominates(o) }) {
			kept = append(kept, *o)
		}
	}
	s.options = kept
}

func (o *option) dominates(other *option) bool {
	if o.width > other.width || o.gain < other.gain {
		return false
	}
	for i := range o.needs {
		// Device memory is bounded on each device, where both options are within it.
		if i != deviceMemory && o.needs[i] > other.needs[i] {
			return false
		}
	}
	return true
}

// descend adds options from one on to a node with so many devices left.
func (s *search) descend(from, devices int, gain float64, used amounts) {
	if gain > s.floor {
		if s.best == nil {
			s.limit = min(s.limits.steps, s.steps+s.limits.after)
		}
		s.floor, s.best = gain, s.groups()
	}
	rest := used.rest(s.prices)
	for at := from; at < len(s.options) && !s.cut; at++ {
		o := &s.options[at]
		if gain+rest+min(s.node[devices], float64(devices)*max(0, o.net)/float64(o.width)) <= s.floor {
			return
		}
		next := used.plus(o.needs)
		if o.width > devices || !next.within() || gain+o.gain+s.node[devices-o.width]+next.rest(s.prices) <= s.floor {
			continue
		}
		if s.steps++; s.steps > s.limit {
			s.cut = true
			return
		}
		s.chosen = append(s.chosen, at)
		s.descend(at, devices-o.width, gain+o.gain, next)
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
}

// groups lists the items of the chosen options.
func (s *search) groups() [][]*item {
	all := make([][]*item, 0, len(s.chosen))
	for _, at := range s.chosen {
		var group []*item
		for _, i := range s.options[at].items {
			group = append(group, s.items[i])
		}
		all = append(all, group)
	}
	return all
}
