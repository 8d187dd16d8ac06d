package preemption

import "slices"

// victimSet is a set of pods to evict, with its cost. Adding a pod of a gang evicts just that member while the gang has
// surplus, else the whole gang. Adding a pod never lowers the cost. Undo removes the last additions first.
type victimSet struct {
	q    *question
	cost Cost
	// evicted says of each candidate whether it is in the set. trail lists the set in the order of additions.
	evicted []bool
	trail   []int32
	// surplusEvicted counts the evicted surplus members of each gang. endedAt is the place in the trail where the rest
	// of the gang follows, −1 where the gang runs on.
	surplusEvicted, endedAt []int32
	// counted is how many victims each budget counts.
	counted []int32
}

func newVictimSet(q *question) *victimSet {
	s := &victimSet{
		q: q, evicted: make([]bool, len(q.candidates.Pods)),
		surplusEvicted: make([]int32, len(q.gangs)), endedAt: make([]int32, len(q.gangs)), counted: make([]int32, len(q.candidates.Budgets)),
	}
	for g := range s.endedAt {
		s.endedAt[g] = -1
	}
	return s
}

// mark is a state of a victim set to return to.
type mark struct {
	trail int
	cost  Cost
}

func (s *victimSet) mark() mark { return mark{len(s.trail), s.cost} }

// add evicts a possible victim (question.evictable), and all pods that must leave with it. The result says whether the
// terms allow that. They do not where the gang may neither lose one more member nor end as a whole, or where a binding
// budget would be violated. The caller must then undo the set.
func (s *victimSet) add(p int32) bool {
	if s.evicted[p] {
		return true
	}
	g := s.q.candidates.Pods[p].Gang
	switch {
	case g < 0:
		s.addPod(p)
	case int(s.surplusEvicted[g]) < s.q.gangs[g].surplus:
		s.surplusEvicted[g]++
		s.addPod(p)
	case s.q.gangs[g].whole:
		s.addGang(g)
	default:
		return false
	}
	return !s.q.terms.budgets || s.cost.Violations == 0
}

// addAll adds candidates, as add does, and reports whether the terms allow all.
func (s *victimSet) addAll(pods []int32) bool {
	for _, p := range pods {
		if !s.add(p) {
			return false
		}
	}
	return true
}

// addGang evicts the rest of a gang.
func (s *victimSet) addGang(g int) {
	s.endedAt[g] = int32(len(s.trail))
	s.cost.addBroken(s.q, len(s.q.gangs[g].running))
	for _, p := range s.q.gangs[g].running {
		if !s.evicted[p] {
			s.addPod(p)
		}
	}
}

func (s *victimSet) addPod(p int32) {
	v := &s.q.candidates.Pods[p]
	s.evicted[p] = true
	s.trail = append(s.trail, p)
	for _, b := range v.Budgets {
		if int(s.counted[b]) >= s.q.candidates.Budgets[b].Allowed {
			s.cost.addViolation(s.q)
		}
		s.counted[b]++
	}
	s.cost.addPod(s.q, p)
}

// undo returns to an earlier state.
func (s *victimSet) undo(m mark) {
	for at := len(s.trail) - 1; at >= m.trail; at-- {
		p := s.trail[at]
		v := &s.q.candidates.Pods[p]
		s.evicted[p] = false
		for _, b := range v.Budgets {
			s.counted[b]--
		}
		switch g := v.Gang; {
		case g < 0:
		case s.endedAt[g] < 0:
			s.surplusEvicted[g]--
		case s.endedAt[g] == int32(at):
			s.endedAt[g] = -1
		}
	}
	s.trail, s.cost = s.trail[:m.trail], m.cost
}

// units returns the units of the set, by name.
func (s *victimSet) units() []Unit {
	units := make([]Unit, 0, len(s.trail))
	for at, p := range s.trail {
		v := &s.q.candidates.Pods[p]
		switch g := v.Gang; {
		case g < 0:
			units = append(units, Unit{Single, v.Name, []int{int(p)}})
		case s.endedAt[g] < 0:
			units = append(units, Unit{Surplus, v.Name, []int{int(p)}})
		case s.endedAt[g] == int32(at):
			units = append(units, Unit{Whole, s.q.candidates.Gangs[g].Name, toInts(s.q.gangs[g].running)})
		}
	}
	slices.SortFunc(units, byName)
	return units
}

// names appends the names of the units to a list, sorted.
func (s *victimSet) names(list []string) []string {
	for at, p := range s.trail {
		v := &s.q.candidates.Pods[p]
		switch g := v.Gang; {
		case g < 0 || s.endedAt[g] < 0:
			list = append(list, v.Name)
		case s.endedAt[g] == int32(at):
			list = append(list, s.q.candidates.Gangs[g].Name)
		}
	}
	slices.Sort(list)
	return list
}

func toInts(list []int32) []int {
	pods := make([]int, 0, len(list))
	for _, p := range list {
		pods = append(pods, int(p))
	}
	return pods
}

// costAlone returns the cost of evicting one candidate that may be a victim, and no other pod unless its gang must end.
func (q *question) costAlone(p int32) Cost {
	v := &q.candidates.Pods[p]
	if v.Gang >= 0 && q.gangs[v.Gang].surplus == 0 {
		return q.costOfGang(v.Gang)
	}
	var cost Cost
	for _, b := range v.Budgets {
		if q.candidates.Budgets[b].Allowed < 1 {
			cost.addViolation(q)
		}
	}
	cost.addPod(q, p)
	return cost
}

// costOfGang returns the cost of evicting a gang and no other pod.
func (q *question) costOfGang(g int) Cost {
	if q.whole[g].Victims == 0 {
		if q.scratch == nil {
			q.scratch = newVictimSet(q)
		}
		q.scratch.addGang(g)
		q.whole[g] = q.scratch.cost
		q.scratch.undo(mark{})
	}
	return q.whole[g]
}
