package placement

import "slices"

// placeLinked tries the container at place k on the set of whole devices with the best links, per shape of device, and
// goes on with the rest. A container that takes one device is left to pick; so are the other sets, for the case that
// the rest does not fit beside the best one.
//
// Greedy over containers: of two that take whole devices, the first gets the best links.
func (s *search) placeLinked(k, c int, ranked []int) bool {
	for at, i := range ranked {
		share, _ := s.share(c, i)
		sameShape := func(j int) bool { return s.n.Shape(i) == s.n.Shape(j) }
		if share.Devices < 2 || slices.ContainsFunc(ranked[:at], sameShape) {
			continue
		}
		candidates := s.within(share.Devices, slices.DeleteFunc(slices.Clone(ranked), func(j int) bool { return !sameShape(j) }))
		if len(candidates) < share.Devices {
			continue
		}
		set := make([]int, share.Devices)
		if _, all := BestSet(s.n, candidates, share.Devices, set); !all {
			s.greedy = true
		}
		if s.steps += len(set); s.steps > s.budget {
			s.cut = true
			return false
		}
		s.shares[c] = share
		for _, j := range set {
			s.put(c, j) // never refused: within keeps to the limit
		}
		if s.place(k + 1) {
			return true
		}
		for range set {
			s.take(c)
		}
	}
	return false
}

// within returns the candidates for m devices, by index: all of them when m new devices may be touched, else those that
// are touched already.
func (s *search) within(m int, candidates []int) []int {
	if s.limit-s.count < m {
		candidates = slices.DeleteFunc(candidates, func(j int) bool { return s.touched[j] == 0 })
	}
	slices.Sort(candidates)
	return candidates
}
