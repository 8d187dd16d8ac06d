package elastic

// ffdl gives each job its least size in the order of the queue, where it fits. Then it divides the capacity so that the
// sum of all speed-ups is the greatest, by the dynamic programme of FfDL (Saxena et al., MASCOTS 2020): with the first j
// jobs on k GPUs, P[j][k] = max over g of s_j(g) + P[j−1][k−g]. The speed-up of a job is relative to its least size.
func ffdl(s *search, p *pool) []int {
	z := p.atLeast(nil)
	lists := make([][]option, len(p.entries))
	for i, e := range p.entries {
		if z.want[i] == 0 {
			lists[i] = []option{{}}
			continue
		}
		for _, n := range e.Sizes {
			if n <= max(e.limit, e.least(), e.size) {
				lists[i] = append(lists[i], option{n, e.takes(n), e.rate(n) / e.base})
			}
		}
	}
	for i, at := range bestOptions(lists, p.capacity, &s.steps) {
		z.want[i] = lists[i][at].size
	}
	return z.want
}

// faster reports whether a rate is above the present one.
func faster(_ *search, e *entry, rate float64) bool { return rate > e.current }
