package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// edges are the features at whose ends the test holds a fifth of the networks out, to see how errors grow outside of
// the measured range.
var edges = []func(*measurements.Network) int64{
	func(n *measurements.Network) int64 { return n.Parameters },
	func(n *measurements.Network) int64 { return n.Activations },
	func(n *measurements.Network) int64 { return n.Batch },
	func(n *measurements.Network) int64 { return n.Depth },
}

// widening returns by how much the standard error of SM grows per factor of ten outside the range. For a fifth at an
// end of a feature, predicted by a fit without it, this is the w for which within² + (w · outside)² adds up to the
// squared errors. widening returns the largest of the eight ends. Most ends need less: where parameters end, SM still
// rises.
func (f *FeatureFit) widening(within float64) float64 {
	worst := 0.0
	for _, edge := range edges {
		order := make([]int, len(f.Networks))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(edge(&f.Networks[a]), edge(&f.Networks[b])), cmp.Compare(a, b))
		})
		fifth := len(order) / folds
		low := f.beyond(order[fifth:], order[:fifth], within)
		high := f.beyond(order[:len(order)-fifth], order[len(order)-fifth:], within)
		worst = max(worst, low, high)
	}
	return math.Sqrt(worst)
}

// beyond fits on some networks and returns, over others, their squared errors above those within by their squared
// distances.
func (f *FeatureFit) beyond(in, out []int, within float64) float64 {
	excess, distance := 0.0, 0.0
	inner := FeatureFit{}
	for _, i := range in {
		inner.Networks = append(inner.Networks, f.Networks[i])
	}
	p := interference.Predictor{Range: inner.span()}
	copy(p.SM[:], inner.coefficients(&targets[0], len(featureModels)-1, func(int) bool { return true }))
	for _, i := range out {
		n := &f.Networks[i]
		guess, err := p.Predict(featuresOf(n))
		if err != nil || guess.Outside == 0 {
			continue // legal since Run looked; and others may have the same amount as the outermost
		}
		e := guess.Profile.SM - n.Busy
		excess += e*e - within*within
		distance += guess.Outside * guess.Outside
	}
	if distance == 0 {
		return 0
	}
	return max(0, excess/distance)
}

// wrongFamily is the model of Lucid with wrong measurements alone.
const wrongFamily = "VGG"

// bandwidth returns the factor between the square of SM and the bandwidth, its standard error on held-out families of
// models, and the number of profiles. A straight line, a proportion and a square were tried, and the square was the
// nearest: Lucid's mean absolute errors are 0.085, 0.095 and 0.055.
func bandwidth(profiles []measurements.Solo) (factor, spread float64, n int, err error) {
	var used []measurements.Solo
	for _, s := range profiles {
		known := !math.IsNaN(s.SM) && !math.IsNaN(s.Bandwidth) && s.Share == vgpu.WholeGPU
		if known && s.Family != wrongFamily {
			used = append(used, s)
		}
	}
	fit := func(without string) (float64, bool) {
		top, bottom := 0.0, 0.0
		for _, s := range used {
			if s.Family != without {
				top += s.Bandwidth * s.SM * s.SM
				bottom += s.SM * s.SM * s.SM * s.SM
			}
		}
		return top / bottom, bottom > 0
	}
	for _, s := range used {
		others, ok := fit(s.Family)
		if !ok {
			return 0, 0, 0, fmt.Errorf("bandwidth of %s: no other family of models has a profile with SM and bandwidth", s.Family)
		}
		e := others*s.SM*s.SM - s.Bandwidth
		spread += e * e
	}
	factor, ok := fit("")
	if !ok {
		return 0, 0, 0, fmt.Errorf("bandwidth: none of %d profiles has an SM above 0 and a bandwidth of a whole device", len(profiles))
	}
	return factor, math.Sqrt(spread / float64(len(used))), len(used), nil
}
