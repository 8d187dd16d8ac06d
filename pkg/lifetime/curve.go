package lifetime

import "math"

// Curve is the distribution of the whole length of a pod that has reached an age.
type Curve struct {
	// reached[i] is the part of pods that reach the begin of bin i; age is that of the pod, in seconds.
	reached [bins + 1]float64
	age     float64
}

func newCurve(h *hazards, age float64) Curve {
	c := Curve{age: age}
	c.reached[0] = 1
	for i := range h {
		c.reached[i+1] = c.reached[i] * (1 - h[i])
	}
	return c
}

// whole returns the part of all pods that run for longer than so many seconds. Within a bin ends are spread evenly over the logarithm of
// time, and beyond the grid half of those that reach a time reach twice of it.
func (c *Curve) whole(seconds float64) float64 {
	if end := secondsAt(bins); seconds >= end {
		return c.reached[bins] * end / seconds
	}
	at := position(seconds)
	bin := min(int(at), bins-1)
	part := at - float64(bin)
	return c.reached[bin] + part*(c.reached[bin+1]-c.reached[bin])
}

// Survival returns the probability, from 0 to 1, that the pod runs for longer than so many seconds from now on. It is 1 for 0.
func (c *Curve) Survival(seconds float64) float64 {
	if seconds <= 0 {
		return 1
	}
	return c.whole(c.age+seconds) / c.whole(c.age)
}

// Quantile returns the remaining time in seconds that the pod exceeds with probability 1 - p. Values of p outside of 0 to 0.999 count as
// the nearest of these.
func (c *Curve) Quantile(p float64) float64 {
	left := (1 - min(max(p, 0), .999)) * c.whole(c.age)
	if beyond := c.reached[bins]; left < beyond {
		return max(0, secondsAt(bins)*beyond/left-c.age)
	}
	low := binOf(c.age)
	for low < bins-1 && c.reached[low+1] > left {
		low++
	}
	fall := c.reached[low] - c.reached[low+1]
	if fall <= 0 {
		return max(0, secondsAt(float64(low))-c.age)
	}
	return max(0, secondsAt(float64(low)+min(1, (c.reached[low]-left)/fall))-c.age)
}

// At returns the curve of the same pod at another age in seconds: that of the start, given that the pod reached the age.
func (c *Curve) At(age float64) Curve {
	other := *c
	other.age = age
	return other
}

// Rank orders pods of unlike curves for the shortest mean time to their ends, the lowest first: the Gittins index (Gittins, 1979). It is the
// least, over spans of time, of the time that the pod takes of the span ÷ the probability that it ends in it. A pod that ends soon or else late
// comes before one that ends in between for certain, though its mean is longer.
//
// Example: a pod that ends after 1 s or after 100 s, with 0.5 each, has 1 ÷ 0.5 = 2 s; one that ends after 10 s has 10 s.
func (c *Curve) Rank() float64 {
	whole := c.whole(c.age)
	least, sum, from := math.Inf(1), 0.0, c.age
	for i := binOf(c.age) + 1; i <= bins; i++ {
		to := math.Exp2(float64(i) / perOctave)
		if to <= from {
			continue
		}
		at := c.whole(to)
		sum += area(from, to, c.whole(from), at)
		if ends := whole - at; ends > 0 {
			least = min(least, sum/ends)
		}
		from = to
	}
	if math.IsInf(least, 1) {
		return c.age + 1
	}
	return least
}

// Mean returns the mean of the remaining time in seconds, of which all that is longer than horizon counts as horizon.
func (c *Curve) Mean(horizon float64) float64 {
	if !(horizon > 0) {
		return 0
	}
	sum, from := 0.0, c.age
	for i := 0; i <= bins; i++ {
		// Every pod survives its first second, after which the first bin begins.
		to := min(math.Exp2(float64(i)/perOctave), c.age+horizon)
		if to > from {
			sum += area(from, to, c.whole(from), c.whole(to))
			from = to
		}
	}
	if horizon -= from - c.age; horizon > 0 {
		// Beyond the grid, survival falls as 1 ÷ time.
		sum += c.whole(from) * from * math.Log1p(horizon/from)
	}
	return sum / c.whole(c.age)
}

// area is the integral over the lengths from a to b of a curve that goes from one value to the other evenly over the logarithm.
func area(a, b, atA, atB float64) float64 {
	if b <= 1 {
		return (b - a) * atA
	}
	ratio := math.Log1p((b - a) / a)
	if ratio < 1e-6 {
		return (b - a) * (atA + atB) / 2
	}
	return (b-a)*atA + (atB-atA)*(b-(b-a)/ratio)
}
