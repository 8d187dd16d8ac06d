package experiment

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// fold is one part of the protocol: the pairs for a model's fit, and those for its score.
type fold struct {
	// family is the held-out one; "" without.
	family string
	// seen are the pairs without it; nil without a fit.
	seen []*Pair
	// scored are the pairs with it, or all.
	scored []*Pair
}

// without names the held-out family, for errors.
func (f *fold) without() string {
	if f.family == "" {
		return ""
	}
	return " without " + f.family
}

// folds makes a fold of each family that the set has, in the order of the list, or a single one without any.
func (s *PairSet) folds(families []string) []fold {
	if families == nil {
		all := fold{scored: make([]*Pair, 0, len(s.Pairs))}
		for i := range s.Pairs {
			all.scored = append(all.scored, &s.Pairs[i])
		}
		return []fold{all}
	}
	var folds []fold
	for _, family := range families {
		f := fold{family: family, seen: []*Pair{}}
		for i := range s.Pairs {
			if c := &s.Pairs[i]; c.of(family) {
				f.scored = append(f.scored, c)
			} else {
				f.seen = append(f.seen, c)
			}
		}
		if len(f.scored) > 0 {
			folds = append(folds, f)
		}
	}
	return folds
}

// draw returns the co-runs that a model sees before its score: of each workload so many of its scored pairs, or all if
// it has less. It draws one workload after the other in the order of their names. Unless Observed is all, these are
// only the workloads of the held-out family. With a history all pairs without the family come first. A workload is in
// the pairs that its partners draw too, so the model may see it far more often.
func (f *fold) draw(each int, whose Observed, seed int64) []*Pair {
	var drawn []*Pair
	if whose == ObservedHistory {
		drawn = slices.Clone(f.seen)
	}
	if each == 0 {
		return drawn
	}
	family := f.family
	if whose == ObservedAll {
		family = ""
	}
	of := map[string][]*Pair{}
	for _, c := range f.scored {
		for _, name := range c.workloads(family) {
			of[name] = append(of[name], c)
		}
	}
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	known := map[*Pair]bool{}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		pairs := of[name]
		for _, i := range random.Perm(len(pairs))[:min(each, len(pairs))] {
			if !known[pairs[i]] {
				known[pairs[i]] = true
				drawn = append(drawn, pairs[i])
			}
		}
	}
	return drawn
}

// workloads names the workloads of the pair that are of a family, each once; all of them for "".
func (c *Pair) workloads(family string) []string {
	names := make([]string, 0, len(c.Sides))
	for i := range c.Sides {
		s := &c.Sides[i]
		if family != "" && s.Family != family || i > 0 && s.Workload == c.Sides[0].Workload {
			continue
		}
		names = append(names, s.Workload)
	}
	return names
}
