package preemption

import (
	"cmp"
	"slices"
)

// podSet is a possible set of victims, with all pods that must leave with them.
type podSet struct {
	evicted []int32
	cost    Cost
	units   []Unit
	// bits marks the pods of the region that are in the set.
	bits marks
}

// marks is a set of the pods of a region, a bit each.
type marks []uint64

func (m marks) mark(i int) { m[i/64] |= 1 << (i % 64) }

func (m marks) has(i int) bool { return m[i/64]&(1<<(i%64)) != 0 }

// within reports whether o has all that m has.
func (m marks) within(o marks) bool {
	for i := range m {
		if m[i]&^o[i] != 0 {
			return false
		}
	}
	return true
}

// compareSets tries all sets of a region's pods that are cheaper than the best so far, the cheapest first. The result
// is false where they are too many.
func (f *gangSearch) compareSets(r *region) bool {
	sets, all := f.listSets(r)
	if !all {
		return false
	}
	slices.SortFunc(sets, func(a, b *podSet) int { return cmp.Or(a.cost.Compare(b.cost), compareUnits(a.units, b.units)) })
	var failed []marks
	for _, s := range sets {
		if f.best != nil && cmp.Or(s.cost.Compare(f.best.cost), compareUnits(s.units, f.best.units)) >= 0 {
			break
		}
		if slices.ContainsFunc(failed, func(m marks) bool { return s.bits.within(m) }) {
			continue
		}
		if f.setsLeft--; f.setsLeft < 0 {
			return false
		}
		if f.placesAfter(r, s.evicted) != nil {
			f.offer(r, s.cost, s.units)
			break
		}
		if f.exact {
			failed = append(failed, f.widen(r, s))
		}
	}
	return true
}

// widen returns a larger set of the region's pods that makes no room either. No subset of it makes room.
func (f *gangSearch) widen(r *region, s *podSet) marks {
	wide, gone := s.bits, slices.Clone(s.evicted)
	for i, p := range r.pods {
		if wide.has(i) {
			continue
		}
		f.setsLeft--
		if f.placesAfter(r, append(gone, p)) == nil {
			wide.mark(i)
			gone = append(gone, p)
		}
	}
	return wide
}

// listSets returns the sets of a region's pods that cost no more than the best so far. The second result is false where
// there are more than the search may list.
func (f *gangSearch) listSets(r *region) (sets []*podSet, all bool) {
	if f.independent(r) > maxIndependent {
		return nil, false
	}
	kept := make([]bool, len(f.q.candidates.Pods))
	most := min(f.setsLeft, f.listsLeft)
	var decide func(at int) bool
	decide = func(at int) bool {
		if f.best != nil && f.victims.cost.Compare(f.best.cost) > 0 {
			return true
		}
		if at == len(r.pods) {
			sets = append(sets, f.set(r))
			return len(sets) <= most
		}
		p := r.pods[at]
		if f.victims.evicted[p] {
			return decide(at + 1)
		}
		m := f.victims.mark()
		enough := true
		if f.victims.add(p) && !slices.ContainsFunc(f.victims.trail[m.trail:], func(p int32) bool { return kept[p] }) {
			enough = decide(at + 1)
		}
		f.victims.undo(m)
		kept[p] = true
		enough = enough && decide(at+1)
		kept[p] = false
		return enough
	}
	all = decide(0)
	f.listsLeft -= len(sets)
	return sets, all
}

// maxIndependent bounds the pods and gangs in a region for which the search lists all sets. With more there would be
// more than MaxSteps sets, unless nearly all cost more than the best so far. A larger bound compares all sets in a few
// more regions, and lists for longer.
const maxIndependent = 24

// independent counts what can be evicted by itself in a region: pods of no gang, and gangs.
func (f *gangSearch) independent(r *region) (count int) {
	seen := map[int]bool{}
	for _, p := range r.pods {
		if g := f.q.candidates.Pods[p].Gang; g < 0 || !seen[g] {
			seen[g] = true
			count++
		}
	}
	return count
}

// set returns the current victims as a set.
func (f *gangSearch) set(r *region) *podSet {
	s := &podSet{evicted: slices.Clone(f.victims.trail), cost: f.victims.cost, units: f.victims.units(), bits: make(marks, len(r.pods)/64+1)}
	for i, p := range r.pods {
		if f.victims.evicted[p] {
			s.bits.mark(i)
		}
	}
	return s
}
