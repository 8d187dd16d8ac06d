package lifetime

import "math"

const (
	// perOctave bins double the time. More tell lengths apart that are nearly the same, and need more pods to fill them.
	perOctave = 4
	// octaves from a second on: 2^25 s are 388 days. Longer lengths count as that long.
	octaves = 25
	bins    = perOctave * octaves
)

// position returns where on the grid a length in seconds lies: 0 for a second or less, and bins for the end of the grid.
func position(seconds float64) float64 {
	if seconds <= 1 {
		return 0
	}
	return min(perOctave*math.Log2(seconds), bins)
}

// binOf returns the bin of a length. The last bin holds all that is longer.
func binOf(seconds float64) int { return min(int(position(seconds)), bins-1) }

// secondsAt returns the length at a position of the grid: the inverse of position.
func secondsAt(position float64) float64 {
	if position <= 0 {
		return 0
	}
	return math.Exp2(position / perOctave)
}

// histogram counts pods by bin. Counts fade, so they are no integers.
type histogram [bins]float64

func (h *histogram) add(weight float64, other *histogram) {
	for i := range h {
		// Sums of what was added and taken away again may miss zero by a rounding error.
		h[i] = max(0, h[i]+weight*other[i])
	}
}

func (h *histogram) scale(by float64) {
	for i := range h {
		h[i] *= by
	}
}

// sketch is what a group knows: how many of its pods ended, and how many were stopped, in each bin.
type sketch struct{ ended, stopped histogram }

func (s *sketch) add(weight float64, other *sketch) {
	s.ended.add(weight, &other.ended)
	s.stopped.add(weight, &other.stopped)
}

func (s *sketch) scale(by float64) {
	s.ended.scale(by)
	s.stopped.scale(by)
}

// hazards are the probabilities to end in a bin, given that the pod reached it.
type hazards [bins]float64

// lindy is the hazard of a pod of which nothing is known: one that has run for a time runs for as long again in half of the cases.
func lindy() hazards {
	var h hazards
	for i := range h {
		h[i] = 1 - math.Exp2(-1.0/perOctave)
	}
	return h
}

// draw moves h to what the sketch has seen: (ends + strength·h) ÷ (pods that reached the bin + strength). A pod that was stopped in a bin
// counts as half there, the actuarial estimate.
//
// Example: with strength 2 and h = 0.1, ten pods of which five end in the bin give (5 + 0.2) ÷ 12 = 0.43.
func (h *hazards) draw(s *sketch, strength float64) {
	later := 0.0
	for i := bins - 1; i >= 0; i-- {
		reached := later + s.ended[i] + s.stopped[i]/2
		h[i] = (s.ended[i] + strength*h[i]) / (reached + strength)
		later += s.ended[i] + s.stopped[i]
	}
}
