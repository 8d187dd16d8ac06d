package preemption

import "slices"

// choice is pods that go, with what that costs. Who goes follows from the pods that have to: a gang of which no more than
// its surplus has to go loses just those members, else all of it goes. More pods never cost less, and what came last is
// undone first.
type choice struct {
	q    *question
	cost Cost
	// gone says of each candidate whether it goes, trail lists those in the order in which they were added.
	gone  []bool
	trail []int32
	// picked counts the surplus members that go of each gang; ended is where in the trail the rest of it follows, −1 where
	// it runs on.
	picked, ended []int32
	// counted is how many victims count against each budget.
	counted []int32
}

func newChoice(q *question) *choice {
	s := &choice{
		q: q, gone: make([]bool, len(q.who.Pods)),
		picked: make([]int32, len(q.gangs)), ended: make([]int32, len(q.gangs)), counted: make([]int32, len(q.who.Budgets)),
	}
	for g := range s.ended {
		s.ended[g] = -1
	}
	return s
}

// mark is a state of a choice to return to.
type mark struct {
	trail int
	cost  Cost
}

func (s *choice) mark() mark { return mark{len(s.trail), s.cost} }

// add makes a candidate go, which may be a victim (question.may), and all who go with it. It reports whether that is
// allowed: not where its gang may neither lose one more member nor go as a whole, or where a budget would be violated that
// is to be kept. Where it is not, the choice is to be undone.
func (s *choice) add(p int32) bool {
	if s.gone[p] {
		return true
	}
	g := s.q.who.Pods[p].Gang
	switch {
	case g < 0:
		s.cost.Beyond = true
		s.take(p)
	case int(s.picked[g]) < s.q.gangs[g].surplus:
		s.picked[g]++
		s.take(p)
	case s.q.gangs[g].whole:
		s.end(g)
	default:
		return false
	}
	return !s.q.terms.budgets || s.cost.Violations == 0
}

// all adds candidates, as add does, and reports whether all may go.
func (s *choice) all(pods []int32) bool {
	for _, p := range pods {
		if !s.add(p) {
			return false
		}
	}
	return true
}

// end makes the rest of a gang go.
func (s *choice) end(g int) {
	s.ended[g] = int32(len(s.trail))
	s.cost.Beyond = true
	s.cost.Broken++
	for _, p := range s.q.gangs[g].running {
		if !s.gone[p] {
			s.take(p)
		}
	}
}

func (s *choice) take(p int32) {
	v := &s.q.who.Pods[p]
	s.gone[p] = true
	s.trail = append(s.trail, p)
	for _, b := range v.Budgets {
		if int(s.counted[b]) >= s.q.who.Budgets[b].Allowed {
			s.cost.Violations++
		}
		s.counted[b]++
	}
	s.cost.take(v)
}

// undo returns to an earlier state.
func (s *choice) undo(m mark) {
	for at := len(s.trail) - 1; at >= m.trail; at-- {
		p := s.trail[at]
		v := &s.q.who.Pods[p]
		s.gone[p] = false
		for _, b := range v.Budgets {
			s.counted[b]--
		}
		switch g := v.Gang; {
		case g < 0:
		case s.ended[g] < 0:
			s.picked[g]--
		case s.ended[g] == int32(at):
			s.ended[g] = -1
		}
	}
	s.trail, s.cost = s.trail[:m.trail], m.cost
}

// units returns who goes, by name.
func (s *choice) units() []Unit {
	units := make([]Unit, 0, len(s.trail))
	for at, p := range s.trail {
		v := &s.q.who.Pods[p]
		switch g := v.Gang; {
		case g < 0:
			units = append(units, Unit{Single, v.Name, []int{int(p)}})
		case s.ended[g] < 0:
			units = append(units, Unit{Surplus, v.Name, []int{int(p)}})
		case s.ended[g] == int32(at):
			units = append(units, Unit{Whole, s.q.who.Gangs[g].Name, wide(s.q.gangs[g].running)})
		}
	}
	slices.SortFunc(units, byName)
	return units
}

// names appends the names of the units to a list, sorted.
func (s *choice) names(list []string) []string {
	for at, p := range s.trail {
		v := &s.q.who.Pods[p]
		switch g := v.Gang; {
		case g < 0 || s.ended[g] < 0:
			list = append(list, v.Name)
		case s.ended[g] == int32(at):
			list = append(list, s.q.who.Gangs[g].Name)
		}
	}
	slices.Sort(list)
	return list
}

func wide(list []int32) []int {
	pods := make([]int, 0, len(list))
	for _, p := range list {
		pods = append(pods, int(p))
	}
	return pods
}

// lone returns what it costs that one candidate goes, which may be a victim, and nobody else has to.
func (q *question) lone(p int32) Cost {
	v := &q.who.Pods[p]
	if v.Gang >= 0 && q.gangs[v.Gang].surplus == 0 {
		return q.ending(v.Gang)
	}
	cost := Cost{Beyond: v.Gang < 0}
	for _, b := range v.Budgets {
		if q.who.Budgets[b].Allowed < 1 {
			cost.Violations++
		}
	}
	cost.take(v)
	return cost
}

// ending returns what it costs that a gang goes and nobody else.
func (q *question) ending(g int) Cost {
	if q.whole[g].Victims == 0 {
		if q.scratch == nil {
			q.scratch = newChoice(q)
		}
		q.scratch.end(g)
		q.whole[g] = q.scratch.cost
		q.scratch.undo(mark{})
	}
	return q.whole[g]
}
