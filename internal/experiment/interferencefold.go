package experiment

import (
	"math/rand/v2"
)

// fold is one part of the protocol: what a model is fitted to, and what it is scored on.
type fold struct {
	// family that is held out; "" without.
	family string
	// seen are the pairs without it; nil where nothing is fitted.
	seen []*Pair
	// scored are the pairs with it, or all.
	scored []*Pair
}

// without says what is held out, for errors.
func (f *fold) without() string {
	if f.family == "" {
		return ""
	}
	return " without " + f.family
}

// folds makes a fold of each family that the set has, in the order in which they are named, or a single one without any.
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

// draw returns the co-runs that a model is shown before it is scored: pairs in a random order, each of which is taken unless
// that would show more than so many co-runs of one of the scored workloads. These are the ones of the family that is held
// out; how often the others appear does not count. So a workload is shown at most so many of its co-runs, and less only
// where its partners have all been shown as often.
func (f *fold) draw(most int, seed int64) []*Pair {
	if most == 0 {
		return nil
	}
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	var drawn []*Pair
	shown := map[string]int{}
	for _, i := range random.Perm(len(f.scored)) {
		c := f.scored[i]
		counts := c.counted(f.family)
		full := false
		for _, name := range counts {
			full = full || shown[name] == most
		}
		if full {
			continue
		}
		drawn = append(drawn, c)
		for _, name := range counts {
			shown[name]++
		}
	}
	return drawn
}

// counted names the workloads of the pair that are of a family, each once; all of them for "".
func (c *Pair) counted(family string) []string {
	var names []string
	for i := range c.Sides {
		s := &c.Sides[i]
		if family != "" && s.Family != family || i > 0 && s.Workload == c.Sides[0].Workload {
			continue
		}
		names = append(names, s.Workload)
	}
	return names
}
