package elasticity

import "time"

// refusal is the last size of a gang for which its members found no places, although package elastic had seen room. It is remembered for a
// while: otherwise the gang would be asked to grow to it again within seconds, and its target would go up and down. The zero value is none.
type refusal struct {
	size  int
	why   string
	until time.Time
	// times counts the refusals without a success between them.
	times int
}

// A size is not tried again for firstRefusal after it was refused, twice as long after each further refusal, and for mostRefusal at most.
const (
	firstRefusal = 5 * time.Minute
	mostRefusal  = time.Hour
)

// refuse remembers that there were no places for a size.
func (m *memory) refuse(size int, why string, now time.Time) {
	if m.refusal.size == size && m.refusal.holds(now) {
		return // the target could not be written, and this is the same refusal
	}
	wait := firstRefusal
	for range m.refusal.times {
		wait = min(2*wait, mostRefusal)
	}
	m.refusal = refusal{size: size, why: why, until: now.Add(wait), times: m.refusal.times + 1}
}

// holds reports whether the size must not be tried now.
func (r *refusal) holds(now time.Time) bool { return r.times > 0 && now.Before(r.until) }

// below returns those of some legal sizes that may be tried now: the least one at least.
func (r *refusal) below(sizes []int, now time.Time) []int {
	if !r.holds(now) {
		return sizes
	}
	for len(sizes) > 1 && sizes[len(sizes)-1] >= r.size {
		sizes = sizes[:len(sizes)-1]
	}
	return sizes
}

// reached forgets the refusal of a gang that has as many members all the same.
func (r *refusal) reached(running int) {
	if r.times > 0 && running >= r.size {
		*r = refusal{}
	}
}
