package inference

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// speeds are how fast models of GPUs do the device's part of a request, A100 being 1. They are round numbers for tests, not measurements.
var speeds = map[string]float64{"A100": 1, "L4": .5, "T4": .25}

const (
	// hostPart is the part of a request's time on a whole A100 that no GPU shortens.
	hostPart = .2
	// wholeVariation and sharedVariation are the squared coefficient of variation on a whole GPU, and what is added as the share goes to 0:
	// a share has neighbours. They are round numbers for tests.
	wholeVariation, sharedVariation = .3, .4
)

// Hardware is what a replica runs on.
type Hardware struct {
	// GPU is a model: A100, L4 or T4.
	GPU string
	// Share is in thousandths of the GPU, from 1 to 1000.
	Share int
}

// Times are the times of single requests: lognormal, with a mean and a squared coefficient of variation above 0.
type Times struct {
	Mean      time.Duration
	Variation float64
}

// On returns the times of a request on hardware, given its mean time on a whole A100. For 40 ms and half a T4: the host takes 8 ms, the
// device 32 ms ÷ 0.25 ÷ 0.5 = 256 ms, together 264 ms, with the variation 0.3 + 0.4 × 0.5 = 0.5.
func (h Hardware) On(a100 time.Duration) (Times, error) {
	speed, known := speeds[h.GPU]
	switch {
	case !known:
		return Times{}, fmt.Errorf("GPU %q: legal are %s", h.GPU, strings.Join(slices.Sorted(maps.Keys(speeds)), ", "))
	case h.Share < 1 || h.Share > 1000:
		return Times{}, fmt.Errorf("share %d: legal are 1 to 1000 thousandths", h.Share)
	case a100 <= 0:
		return Times{}, fmt.Errorf("time %v on a whole A100: it must be above 0", a100)
	}
	share := float64(h.Share) / 1000
	mean := hostPart*a100.Seconds() + (1-hostPart)*a100.Seconds()/speed/share
	return Times{time.Duration(mean * float64(time.Second)), wholeVariation + sharedVariation*(1-share)}, nil
}

// draw returns the time of a request. A lognormal time has the variation exp(σ²) - 1 and the mean exp(μ + σ²/2).
func (t Times) draw(r *rand.Rand) time.Duration {
	square := math.Log1p(t.Variation)
	return time.Duration(float64(t.Mean) * math.Exp(math.Sqrt(square)*r.NormFloat64()-square/2))
}
