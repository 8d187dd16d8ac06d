package interference

import (
	"fmt"
	"math"
)

// Features describe one step of a model's training on one device by the model's graph, without a run.
type Features struct {
	// GigaFLOPs are the floating-point operations of a step in 10⁹, forward and backward, 0 where the count is unknown.
	// Then they are 6 · Parameters · Batch, as in a network that uses each parameter once for each sample.
	GigaFLOPs float64
	// Parameters counts the weights, Activations the outputs of all layers for one sample.
	Parameters, Activations float64
	// Batch is the samples of a step, Depth the layers with weights.
	Batch, Depth float64
}

// flops is the operations of training per parameter and sample: a multiplication and an addition forward, twice as many
// backward.
const flops = 6

// operations returns the operations of a step in 10⁹.
func (f *Features) operations() float64 {
	if f.GigaFLOPs > 0 {
		return f.GigaFLOPs
	}
	return flops * f.Parameters * f.Batch / 1e9
}

// Legal amounts, by a factor of a hundred and more around the networks of our day: 10¹³ parameters, 10⁷ samples in a step.
const (
	leastOperations = 1e-9
	mostOperations  = 1e12
	mostParameters  = 1e13
	mostActivations = 1e13
	mostBatch       = 1e7
	mostDepth       = 1e5
)

// Validate returns an error that names the feature for amounts that no network has.
func (f *Features) Validate() error {
	for _, x := range []struct {
		name               string
		value, least, most float64
		unknown            bool
	}{
		{"GigaFLOPs", f.GigaFLOPs, leastOperations, mostOperations, f.GigaFLOPs == 0},
		{"Parameters", f.Parameters, 1, mostParameters, false},
		{"Activations", f.Activations, 1, mostActivations, false},
		{"Batch", f.Batch, 1, mostBatch, false},
		{"Depth", f.Depth, 1, mostDepth, false},
	} {
		if !x.unknown && !(x.value >= x.least && x.value <= x.most) { // this refuses NaN too
			return fmt.Errorf("validate features: %s is %v, legal is %v to %v", x.name, x.value, x.least, x.most)
		}
	}
	return nil
}

// Numbers of terms, and so of coefficients.
const (
	UseTerms    = 18
	MemoryTerms = 3
)

// UseTerms are the terms of which the use of the SMs is a linear function. The terms are straight lines with bends in
// the decimal logarithms of parameters, batch, activations and operations, and the depth. Use levels off where small
// kernels wait for their launch and where large ones fill the device; a straight line cannot follow that. The features
// must be legal.
func (f *Features) UseTerms() [UseTerms]float64 {
	p, b, a, w := math.Log10(f.Parameters), math.Log10(f.Batch), math.Log10(f.Activations), math.Log10(f.operations())
	return [UseTerms]float64{
		1,
		p, above(p, 5), above(p, 6), above(p, 7), above(p, 7.5), above(p, 8),
		b, above(b, 2), above(b, 2.5),
		a, above(a, 3), above(a, 4),
		f.Depth,
		above(w, -2), above(w, 0), above(w, 1), above(w, 2),
	}
}

// above is a bend at a knot: nothing below it, a straight line above.
func above(x, knot float64) float64 { return max(0, x-knot) }

// MemoryTerms are the terms of which the memory is a linear function. The terms are a constant for the context, the
// parameters with their gradients and the state of the optimiser, and the activations of all samples of a step.
func (f *Features) MemoryTerms() [MemoryTerms]float64 {
	return [MemoryTerms]float64{1, f.Parameters, f.Activations * f.Batch}
}

// Range is the least and the most of each feature over the dense networks of a predictor's fit. GigaFLOPs are 0.
type Range struct {
	Least, Most Features
}

// Outside returns how far the features lie outside the range, in factors of ten, summed over the features; 0 within it.
// Operations count by their number per parameter and sample. The measured dense networks have 6; convolutions, which
// have no measurements, have many more.
//
// Example: twenty times the most parameters and a third of the least batch are log₁₀ 20 + log₁₀ 3 = 1.778 outside.
func (r *Range) Outside(f *Features) float64 {
	sum := decades(f.Parameters, r.Least.Parameters, r.Most.Parameters)
	sum += decades(f.Activations, r.Least.Activations, r.Most.Activations)
	sum += decades(f.Batch, r.Least.Batch, r.Most.Batch)
	sum += decades(f.Depth, r.Least.Depth, r.Most.Depth)
	return sum + decades(f.dense(), f.Parameters, f.Parameters)
}

// dense is the number of parameters of the dense network with as many operations.
func (f *Features) dense() float64 {
	if f.GigaFLOPs == 0 {
		return f.Parameters
	}
	return f.GigaFLOPs * 1e9 / (flops * f.Batch)
}

// decades returns the factors of ten from x to the nearer end of a range, 0 within it.
func decades(x, least, most float64) float64 {
	// A difference by rounding only is within the range.
	const rounding = 1e-9
	out := max(math.Log10(least/x), math.Log10(x/most))
	if out < rounding {
		return 0
	}
	return out
}

// clamp returns the dense network within the range that is nearest to the features. Its parameters follow from the
// number of operations, since operations fill a device.
func (r *Range) clamp(f *Features) Features {
	return Features{
		Parameters:  min(max(f.dense(), r.Least.Parameters), r.Most.Parameters),
		Activations: min(max(f.Activations, r.Least.Activations), r.Most.Activations),
		Batch:       min(max(f.Batch, r.Least.Batch), r.Most.Batch),
		Depth:       min(max(f.Depth, r.Least.Depth), r.Most.Depth),
	}
}
