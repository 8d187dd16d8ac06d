package lifetime

import (
	"cmp"
	"fmt"
	"math"
)

// unit is the length on the grid that stands for a ratio of 1 to what a pod declared, so that ratios down to 2^-12 are told apart. It is in
// the middle of its bin: of words that are just right the median is 1.
const unit = (1 << 12) * 1.0905077326652577 // the latter is 2 to the power of half a bin, an eighth

// ratio is a length in units of a word about it, on the grid.
func ratio(length, word float64) float64 { return min(length/word*unit, longest) }

// Predict returns how long a pod that has run for age seconds still runs.
func (l *Learner) Predict(p Pod, age float64) (Curve, error) {
	if err := cmp.Or(p.validate(), legal("age", age)); err != nil {
		return Curve{}, fmt.Errorf("predict a pod: %w", err)
	}
	h := l.hazards(p)
	c := newCurve(&h, age)
	for _, w := range p.words() {
		l.mix(&c, p, w)
	}
	return c, nil
}

// Known returns how many pods of the user of a pod the learner remembers: what is told apart by user rests on them. Without a name of the
// user it counts those of all.
func (l *Learner) Known(p Pod) int {
	if g := l.groups[p.key(byUser)]; g != nil {
		return int(math.Round(g.past.pods()))
	}
	return 0
}

// hazards are those of pods alike: over all users first, then of the user's own, then of the user's last ones.
func (l *Learner) hazards(p Pod) hazards {
	h, known, finest := lindy(), p.known(), key{}
	for _, by := range levels {
		if by&^known == 0 {
			h.see(l.sums[p.key(by)], l.config.Strength)
		}
	}
	for _, by := range levels {
		if by&^known != 0 {
			continue
		}
		finest = p.key(by | byUser)
		// Without a name of the user, all pods are of one, and the sums have said that already.
		if g := l.groups[finest]; g != nil && p.User != "" {
			h.see(&g.past, l.config.Strength)
		}
	}
	if g := l.groups[finest]; g != nil {
		h.see(&g.recent, l.config.Strength)
	}
	return h
}

func (h *hazards) see(s *sketch, strength float64) {
	if s != nil {
		h.draw(s, strength)
	}
}

// trusted is how many pods a projected length counts from the start, of which it was right: progress is measured, a declared length is not.
const trusted = 24

// right is a sketch of pods of which the word was right.
func right() *sketch {
	s := &sketch{}
	s.ended[binOf(unit)] = trusted
	return s
}

// mix makes the curve a mixture of itself and of what the word says. The word weighs n ÷ (n + Strength) after n pods that gave such a
// word.
func (l *Learner) mix(c *Curve, p Pod, w word) {
	h, least := lindy(), 0.0
	if w.by == projected {
		h.draw(right(), l.config.Strength)
		least = trusted
	}
	n := least
	for _, by := range []attributes{w.by, w.by | byUser} {
		s := l.sums[p.key(by)]
		if g := l.groups[p.key(by)]; g != nil {
			s = &g.past
		}
		if s == nil || by&byUser != 0 && p.User == "" {
			continue
		}
		h.draw(s, l.config.Strength)
		n = max(least, s.pods())
	}
	said, weight := newCurve(&h, 0), n/(n+l.config.Strength)
	for i := 1; i <= bins; i++ {
		c.reached[i] += weight * (said.whole(ratio(secondsAt(float64(i)), w.seconds)) - c.reached[i])
	}
}

// pods is how many pods the sketch remembers.
func (s *sketch) pods() float64 {
	n := 0.0
	for i := range s.ended {
		n += s.ended[i] + s.stopped[i]
	}
	return n
}
