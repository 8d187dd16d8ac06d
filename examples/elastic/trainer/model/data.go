package model

import "math/rand/v2"

// pattern is how strong the pattern of a class is beside noise of a deviation of 1. A larger one is learned in fewer steps.
const pattern = 0.3

// patterns is the stream of the seed that draws the patterns. Samples have the streams from 0 on.
const patterns = 1<<64 - 1

// Data are the samples of a training.
type Data struct {
	spec    Spec
	classes [Classes][Inputs]float32
}

// NewData returns the samples of a training.
func NewData(s Spec) *Data {
	d := &Data{spec: s}
	r := rand.New(rand.NewPCG(s.Seed, patterns))
	for c := range d.classes {
		for i := range d.classes[c] {
			d.classes[c][i] = float32(pattern * r.NormFloat64())
		}
	}
	return d
}

// slice writes the samples of a slice of a step into inputs, one after the other, and their classes into classes.
func (d *Data) slice(step, slice int, inputs []float32, classes []int) {
	first := step*d.spec.Batch + slice*len(classes)
	for i := range classes {
		r := rand.New(rand.NewPCG(d.spec.Seed, uint64(first+i)))
		classes[i] = r.IntN(Classes)
		x := inputs[i*Inputs : (i+1)*Inputs]
		for j := range x {
			x[j] = d.classes[classes[i]][j] + float32(r.NormFloat64())
		}
	}
}
