package placement

import "slices"

// placeLinked tries the container at place k on the set of whole devices with the best links, once per shape of device,
// and arranges the rest. For a container with one device, tryDevices does that. The same holds for the other sets,
// where the rest does not fit beside the best one.
//
// The order of containers is greedy: of two that take whole devices, the first gets the best links.
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
			s.put(c, j) // put never refuses: within respects the limit
		}
		if s.arrangeFrom(k + 1) {
			return true
		}
		for range set {
			s.removeLast(c)
		}
	}
	return false
}

// within returns the candidates for m devices, by index: all of them where the arrangement may use m new devices, else
// those that it uses already.
func (s *search) within(m int, candidates []int) []int {
	if s.limit-s.count < m {
		candidates = slices.DeleteFunc(candidates, func(j int) bool { return s.touched[j] == 0 })
	}
	slices.Sort(candidates)
	return candidates
}
