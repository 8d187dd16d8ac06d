package elastic

import "slices"

const (
	// dragonPatience is the wait in seconds of the queue's head for which DRAGON shrinks jobs.
	dragonPatience = 30
	// dragonQuiet is the time in seconds without any change after which DRAGON lets jobs grow.
	dragonQuiet = 60
)

// dragon follows the controller of DRAGON (Lin, Yeh, Chou, CLOSER 2019):
//
//   - a job that waits starts with the largest size that fits, and others pass one that does not fit;
//   - running jobs shrink to their least sizes, the last that came first, until there is room for a job with a higher
//     priority than one of them, or for the head of the queue once it has waited for dragonPatience;
//   - after dragonQuiet without any change each job in turn grows to its largest size.
func dragon(s *search, p *pool) []int {
	z := p.asNow()
	head := true
	for i, e := range p.entries {
		if !e.waits() || e.blocked {
			continue
		}
		if z.startLargest(i) {
			continue
		}
		urgent := head && s.now-e.Arrived >= dragonPatience || slices.ContainsFunc(p.entries, func(o *entry) bool {
			return !o.waits() && o.Priority < e.Priority
		})
		if urgent && z.shrinkFor(i, z.last) {
			z.start(i)
		}
		head = false
	}
	if !s.quiet(p, dragonQuiet) {
		return z.want
	}
	for i := range p.entries {
		for z.grow(i) {
			continue
		}
	}
	return z.want
}

// last returns the last running job of the order that can shrink.
func (z *sizes) last() (victim int, some bool) {
	for i, e := range slices.Backward(z.entries) {
		if !e.waits() && z.want[i] > e.least() {
			return i, true
		}
	}
	return 0, false
}

// quiet reports whether no job of a pool has come, started or changed its size for so many seconds.
func (s *search) quiet(p *pool, seconds int64) bool {
	for _, e := range p.entries {
		last := max(e.Arrived, e.Started)
		if len(e.Moved) > 0 {
			last = max(last, e.Moved[len(e.Moved)-1])
		}
		if s.now-last < seconds {
			return false
		}
	}
	return true
}
