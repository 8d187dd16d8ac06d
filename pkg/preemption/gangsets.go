package preemption

import (
	"cmp"
	"slices"
)

// set is pods that may go together, with those that go with them.
type set struct {
	gone  []int32
	cost  Cost
	units []Unit
	// at marks those of the region's pods that are gone.
	at marks
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

// compare looks at all sets of a region's pods that are cheaper than the best so far, the cheapest first. It reports false where
// they are too many.
func (f *field) compare(r *region) bool {
	sets, all := f.list(r)
	if !all {
		return false
	}
	slices.SortFunc(sets, func(a, b *set) int { return cmp.Or(a.cost.Compare(b.cost), compareUnits(a.units, b.units)) })
	var failed []marks
	for _, s := range sets {
		if f.best != nil && cmp.Or(s.cost.Compare(f.best.cost), compareUnits(s.units, f.best.units)) >= 0 {
			break
		}
		if slices.ContainsFunc(failed, func(m marks) bool { return s.at.within(m) }) {
			continue
		}
		if f.left--; f.left < 0 {
			return false
		}
		if f.room(r, s.gone) != nil {
			f.offer(r, s.cost, s.units)
			break
		}
		if f.exact {
			failed = append(failed, f.widen(r, s))
		}
	}
	return true
}

// widen returns more of the region's pods that make no room either: none of their subsets does.
func (f *field) widen(r *region, s *set) marks {
	wide, gone := s.at, slices.Clone(s.gone)
	for i, p := range r.pods {
		if wide.has(i) {
			continue
		}
		f.left--
		if f.room(r, append(gone, p)) == nil {
			wide.mark(i)
			gone = append(gone, p)
		}
	}
	return wide
}

// list returns the sets of a region's pods that cost no more than the best so far. It reports false where there are more than
// may be looked at.
func (f *field) list(r *region) (sets []*set, all bool) {
	if f.independent(r) > maxIndependent {
		return nil, false
	}
	kept := make([]bool, len(f.q.who.Pods))
	most := min(f.left, f.listed)
	var decide func(at int) bool
	decide = func(at int) bool {
		if f.best != nil && f.picked.cost.Compare(f.best.cost) > 0 {
			return true
		}
		if at == len(r.pods) {
			sets = append(sets, f.set(r))
			return len(sets) <= most
		}
		p := r.pods[at]
		if f.picked.gone[p] {
			return decide(at + 1)
		}
		m := f.picked.mark()
		enough := true
		if f.picked.add(p) && !slices.ContainsFunc(f.picked.trail[m.trail:], func(p int32) bool { return kept[p] }) {
			enough = decide(at + 1)
		}
		f.picked.undo(m)
		kept[p] = true
		enough = enough && decide(at+1)
		kept[p] = false
		return enough
	}
	all = decide(0)
	f.listed -= len(sets)
	return sets, all
}

// maxIndependent is the number of pods and gangs in a region beyond which its sets are not listed: there would be more than
// MaxSteps of them, unless nearly all cost more than what is known already. Larger finds more of these cases.
const maxIndependent = 24

// independent counts what can go or stay by itself in a region: pods of no gang, and gangs.
func (f *field) independent(r *region) (count int) {
	seen := map[int]bool{}
	for _, p := range r.pods {
		if g := f.q.who.Pods[p].Gang; g < 0 || !seen[g] {
			seen[g] = true
			count++
		}
	}
	return count
}

// set returns what is picked.
func (f *field) set(r *region) *set {
	s := &set{gone: slices.Clone(f.picked.trail), cost: f.picked.cost, units: f.picked.units(), at: make(marks, len(r.pods)/64+1)}
	for i, p := range r.pods {
		if f.picked.gone[p] {
			s.at.mark(i)
		}
	}
	return s
}
